#!/bin/sh
# The tests under AddressSanitizer (with leaks) and ThreadSanitizer: `make sanitize`.
#
#   sanitize.sh PYTHON [core c python threads]
#
# Needs Linux, nightly Rust without further components, and a C compiler. Rust links its sanitizer runtime into programs; for Python and
# C it is built as a library that is loaded first. The standard library is not instrumented.
set -eu
cd "$(dirname "$0")/../.."
python=$1
shift
[ $# -gt 0 ] || set -- core c python threads

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

# cargo under a sanitizer, with its own target folder.
instrumented() {
    sanitizer=$1 command=$2
    shift 2
    RUSTFLAGS="$flags -Zsanitizer=$sanitizer" cargo +nightly "$command" --locked --quiet --target "$target" \
        --target-dir "$out/$sanitizer" "$@"
}

# The runtime as a library, without the object that starts before main.
preloaded() {
    cp "$runtime.asan.a" "$out/asan.a"
    ar d "$out/asan.a" asan_preinit.cpp.o
    "${CC:-cc}" -shared -o "$out/libsanitize.so" -Wl,--whole-archive "$out/asan.a" -Wl,--no-whole-archive \
        -lpthread -ldl -lrt -lm
    rm "$out/asan.a"
    # The name by which C compilers link their own runtime, which refuses to run beside this one.
    echo "INPUT($out/libsanitize.so)" > "$out/libasan.so"
}

core() {
    instrumented address test --lib --tests
    instrumented address test --lib --tests --no-default-features
    instrumented address test --package sparsebayes-c
}

# Optimised, without link-time optimisation.
export CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16

# The C tests are instrumented too: gcc and clang use the same runtime interface, and -L finds this one first.
c() {
    preloaded
    instrumented address build --package sparsebayes-c --release
    runtime_first="-fsanitize=address -L$out -Wl,-rpath,$out"
    CC="${CC:-cc} $runtime_first" CXX="${CXX:-c++} $runtime_first" SANITIZED=yes \
        tests/c/run.sh "$out/address/$target/release"
}

# Python itself is not instrumented, so leak detection is off. Tests with little memory cannot run under the sanitizer.
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

# Without rayon, whose synchronisation in the uninstrumented standard library looks like races. tsan.txt lists the rest.
threads() {
    flags="$flags -Cunsafe-allow-abi-mismatch=sanitizer"
    TSAN_OPTIONS="suppressions=$(pwd)/tests/faults/tsan.txt" instrumented thread test --no-default-features --features fit --test core -- threads::
}

for what; do
    echo "== $what"
    "$what"
done
echo "sanitizers: nothing found"
