//! The committed header equals the generated one.

use std::error::Error;
use std::path::{Path, PathBuf};

fn inside(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn written() -> Result<String, Box<dyn Error>> {
    let config = cbindgen::Config::from_file(inside("cbindgen.toml"))?;
    let builder = cbindgen::Builder::new().with_config(config);
    let mut header = Vec::new();
    // cbindgen finds the modules.
    let bindings = builder.with_src(inside("src/lib.rs")).generate()?;
    bindings.write(&mut header);
    Ok(String::from_utf8(header)?)
}

/// With `WRITE_HEADER` set, as `make header` does, the test writes the header instead.
#[test]
fn the_header_is_current() -> Result<(), Box<dyn Error>> {
    let (path, new) = (inside("include/sparsebayes.h"), written()?);
    if std::env::var_os("WRITE_HEADER").is_some() {
        return Ok(std::fs::write(path, new)?);
    }
    let kept = std::fs::read_to_string(path)?;
    assert!(
        kept.lines().eq(new.lines()),
        "include/sparsebayes.h is out of date; run `make header`"
    );
    Ok(())
}
