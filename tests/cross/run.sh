#!/bin/sh
# Runs the Rust tests of the predictor and of model files on emulated processors, those named as arguments.
# The programs are static: they need no libraries of the other processor.
set -eu
rustc=${RUSTC:-rustc}

need() {
    echo "make test-cross needs $1" >&2
    exit 2
}

for cpu in "$@"; do
    target=$cpu-unknown-linux-gnu gcc=$cpu-linux-gnu-gcc qemu=qemu-$cpu
    [ "$cpu" != i686 ] || qemu=qemu-i386
    command -v "$qemu" > /dev/null || need "$qemu: apt install qemu-user"
    command -v "$gcc" > /dev/null || need "$gcc: apt install gcc-$cpu-linux-gnu"
    # With CARGO_UNSTABLE_BUILD_STD=std, cargo compiles the standard library.
    [ -n "${CARGO_UNSTABLE_BUILD_STD:-}" ] || [ -d "$($rustc --print target-libdir --target "$target")" ] ||
        need "the standard library of $target: rustup target add $target"
    variable=CARGO_TARGET_$(echo "$target" | tr a-z- A-Z_)
    echo "$cpu"
    env "${variable}_LINKER=$gcc" "${variable}_RUNNER=$qemu" "${variable}_RUSTFLAGS=-C target-feature=+crt-static" \
        cargo test --locked --quiet --no-default-features --lib --tests --target "$target"
done
