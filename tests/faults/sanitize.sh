#!/bin/sh
# The tests under AddressSanitizer (with leaks) and ThreadSanitizer: `make sanitize`.
#
#   sanitize.sh PYTHON SECONDS [core c fuzz python threads]
#
# Needs Linux, nightly Rust without further components, and a C compiler. Rust's own runtime is linked into programs; for Python, and
# for C, it is made a library that is there before all others. std itself is not instrumented: it comes compiled.
set -eu
cd "$(dirname "$0")/../.."
python=$1 seconds=$2
shift 2
[ $# -gt 0 ] || set -- core c fuzz python threads

fail() {
    echo "make sanitize: $1" >&2
    exit 2
}
[ "$(uname)" = Linux ] || fail "sanitizers of Rust are set up for Linux here"
rustc +nightly --version > /dev/null 2>&1 || fail "needs nightly Rust: rustup toolchain install nightly --profile minimal"
command -v "${CC:-cc}" > /dev/null || fail "needs a C compiler"
target=$(rustc +nightly -vV | sed -n 's/^host: //p')
runtime=$(rustc +nightly --print target-libdir)/librustc-nightly_rt
[ -e "$runtime.asan.a" ] || fail "nightly Rust has no AddressSanitizer for $target"

out=$(pwd)/target/sanitize
mkdir -p "$out"
flags="${RUSTFLAGS:-} -Cdebuginfo=line-tables-only"

# cargo under a sanitizer: in a folder of its own, since all is compiled again.
instrumented() {
    sanitizer=$1 command=$2
    shift 2
    RUSTFLAGS="$flags -Zsanitizer=$sanitizer" cargo +nightly "$command" --locked --quiet --target "$target" \
        --target-dir "$out/$sanitizer" "$@"
}

# The runtime as a library. The part that starts before main cannot be in a library: it starts on loading.
preloaded() {
    cp "$runtime.asan.a" "$out/asan.a"
    ar d "$out/asan.a" asan_preinit.cpp.o
    "${CC:-cc}" -shared -o "$out/libsanitize.so" -Wl,--whole-archive "$out/asan.a" -Wl,--no-whole-archive \
        -lpthread -ldl -lrt -lm
    rm "$out/asan.a"
    # C compilers link their own runtime by this name, and two runtimes refuse to run together.
    echo "INPUT($out/libsanitize.so)" > "$out/libasan.so"
}

core() {
    instrumented address test --lib --tests
    instrumented address test --lib --tests --no-default-features
    instrumented address test --package sparsebayes-c
    instrumented address test --package sparsebayes-fuzz --profile fuzz
}

# Optimised, without the passes over the whole program that make it no faster to test.
export CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16

fuzz() {
    instrumented address run --package sparsebayes-fuzz --release -- all --seconds "$seconds" --keep target/fuzz
}

# The C tests are instrumented too: gcc and clang ask the same of a runtime, and -L finds ours before theirs.
c() {
    preloaded
    instrumented address build --package sparsebayes-c --release
    runtime_first="-fsanitize=address -L$out -Wl,-rpath,$out"
    CC="${CC:-cc} $runtime_first" CXX="${CXX:-c++} $runtime_first" SANITIZED=yes \
        tests/c/run.sh "$out/address/$target/release"
}

# Python is not instrumented, and the memory it holds at exit is no leak. Processes under the sanitizer need much memory.
extension() {
    preloaded
    instrumented address build --package sparsebayes-py --release
    rm -rf "$out/python"
    mkdir -p "$out/python"
    cp -r python/sparsebayes "$out/python"
    rm -f "$out"/python/sparsebayes/_core*.so
    cp "$out/address/$target/release/lib_core.so" "$out/python/sparsebayes/_core.abi3.so"
}

python() {
    extension
    LD_PRELOAD="$out/libsanitize.so" PYTHONPATH="$out/python" PYTHONMALLOC=malloc \
        ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1:detect_stack_use_after_return=1 \
        "$python" -m pytest -p no:cacheprovider --timeout=3000 -k "not little_memory" ${TESTS:-tests/python}
}

# Without rayon: its threads synchronise in std, which is not instrumented, so that the sanitizer reports false races. Threads that share a
# model synchronise only at their start and end; tsan.txt lists the false reports about these.
threads() {
    flags="$flags -Cunsafe-allow-abi-mismatch=sanitizer"
    TSAN_OPTIONS="suppressions=$(pwd)/tests/faults/tsan.txt" instrumented thread test --no-default-features --features fit --test core -- threads::
}

for what; do
    echo "== $what"
    "$what"
done
echo "sanitizers: nothing found"
