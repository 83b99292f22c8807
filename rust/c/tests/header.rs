//! The header that is kept is the one that the code says.

use std::path::{Path, PathBuf};

fn inside(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn written() -> String {
    let config = cbindgen::Config::from_file(inside("cbindgen.toml")).unwrap();
    let builder = cbindgen::Builder::new().with_config(config);
    let mut header = Vec::new();
    // It finds the modules by itself.
    let bindings = builder.with_src(inside("src/lib.rs")).generate().unwrap();
    bindings.write(&mut header);
    String::from_utf8(header).unwrap()
}

/// With `WRITE_HEADER` set, as `make header` does, it is written instead.
#[test]
fn the_header_is_that_of_the_code() {
    let (path, new) = (inside("include/sparsebayes.h"), written());
    if std::env::var_os("WRITE_HEADER").is_some() {
        std::fs::write(path, new).unwrap();
        return;
    }
    let kept = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        kept.lines().eq(new.lines()),
        "include/sparsebayes.h is not what the code says; run `make header`"
    );
}
