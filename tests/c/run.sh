#!/bin/sh
# Compiles the tests and the example in C and C++ with the shared and the static library, and runs them: `make test-c`.
# Its argument is the folder of the libraries.
set -eu
cd "$(dirname "$0")/../.."
libraries=$(cd "$1" && pwd)
out=target/test-c
golden=tests/golden/format-1
c="${CC:-cc} -std=c99 -O1 -g -Wall -Wextra -Werror -pedantic -Irust/c/include"
sources="tests/c/check.c tests/c/test_predictor.c tests/c/test_refusals.c tests/c/test_threads.c"
shared="-L$libraries -lsparsebayes -Wl,-rpath,$libraries"
static="$libraries/libsparsebayes.a"
# What the static library needs besides, as rustc's --print native-static-libs has it.
[ "$(uname)" = Linux ] && static="$static -lgcc_s -lutil -lrt -lpthread -ldl"
mkdir -p $out

# The example of docs/rust-and-c.md, with what it leaves to its reader.
awk '/^```c$/ { inside = 1; next } /^```/ { inside = 0 } inside' docs/rust-and-c.md > $out/example.txt
{
    echo '#include <stdio.h>'
    grep '^#' $out/example.txt
    echo 'int main(void) {'
    grep -v '^#' $out/example.txt
    echo 'return 0; }'
} > $out/example.c
cp $golden/one_input.safetensors $out/model.safetensors

for kind in shared static; do
    eval "link=\$$kind"
    $c $sources -o $out/test-$kind $link -lpthread -lm
    $c examples/c/predict.c -o $out/predict-$kind $link -lm
    $out/test-$kind $golden
    $out/predict-$kind $golden/two_classes.safetensors 0.5 -0.5 | grep -q '^innen: 0\.9'
    $out/predict-$kind $golden/regression.safetensors 0 1 | grep -Eq '^[0-9.]+ \+- [0-9.]+$'
    $c $out/example.c -o $out/example-$kind $link -lm
    (cd $out && ./example-$kind) | grep -Eq '^0\.6[0-9]* \+- 0\.1[0-9]*$'
    if $out/predict-$kind $golden/regression.safetensors 0 2> /dev/null; then
        echo "the example takes rows of any length" >&2
        exit 1
    fi
    if [ -n "${SANITIZED:-}" ]; then
        : # Memory is looked after already.
    elif command -v valgrind > /dev/null; then
        valgrind --quiet --error-exitcode=1 --leak-check=full --show-leak-kinds=all --errors-for-leak-kinds=all \
            $out/test-$kind $golden
    else
        echo "valgrind is not installed: memory of test-$kind not checked" >&2
    fi
done

if command -v ${CXX:-c++} > /dev/null; then
    ${CXX:-c++} -std=c++11 -Wall -Wextra -Werror -pedantic -Irust/c/include tests/c/test_header.cpp \
        -o $out/test-header $shared
    $out/test-header
else
    echo "${CXX:-c++} is not installed: the header was not compiled as C++" >&2
fi
echo "C interface: all tests passed"
