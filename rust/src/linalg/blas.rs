//! Products of slices, in column-major storage and fixed order.

use nalgebra::{DMatrix, DMatrixView, DMatrixViewMut, Dyn};

use super::simd::{Simd, WithSimd, dispatch};

/// Inner product.
#[must_use]
#[inline(always)]
#[allow(clippy::inline_always)] // into vector code: see `simd::dispatch`
pub fn dot(a: &[f64], b: &[f64]) -> f64 {
    // Eight partial sums let the additions overlap; their order is fixed, so the result is too.
    let mut sums = [0.0_f64; 8];
    let (a_head, a_tail) = a.as_chunks::<8>();
    let (b_head, b_tail) = b.as_chunks::<8>();
    for (x, y) in a_head.iter().zip(b_head) {
        for lane in 0..8 {
            sums[lane] += x[lane] * y[lane];
        }
    }
    let tail: f64 = a_tail.iter().zip(b_tail).map(|(x, y)| x * y).sum();
    let [s0, s1, s2, s3, s4, s5, s6, s7] = sums;
    ((s0 + s4) + (s2 + s6)) + ((s1 + s5) + (s3 + s7)) + tail
}

/// `y += c * x`.
pub fn axpy(c: f64, x: &[f64], y: &mut [f64]) {
    for (y, x) in y.iter_mut().zip(x) {
        *y += c * x;
    }
}

/// The first `m` elements of column `j`.
#[must_use]
pub fn head(matrix: &DMatrix<f64>, j: usize, m: usize) -> &[f64] {
    let start = j * matrix.nrows();
    &matrix.as_slice()[start..start + m]
}

/// The first `m` elements of column `j`, to be written.
pub fn head_mut(matrix: &mut DMatrix<f64>, j: usize, m: usize) -> &mut [f64] {
    let start = j * matrix.nrows();
    &mut matrix.as_mut_slice()[start..start + m]
}

/// `out += A^T B` for A (n x p, its columns `a_stride` apart) and B (n x r, columns `b_stride` apart); out is p x r,
/// column-major and contiguous.
///
/// # Panics
/// If a slice is too short for its shape.
pub fn add_transpose_product(
    a: &[f64],
    a_stride: usize,
    b: &[f64],
    b_stride: usize,
    n: usize,
    out: &mut [f64],
    p: usize,
) {
    // Below this nalgebra leaves its blocked product for one that takes a transposed (strided) column to be as long as
    // the memory it spans, and reads past its end (0.35.0).
    const SMALL: usize = 5;
    let r = out.len().checked_div(p).unwrap_or(0);
    if n.min(p).min(r) <= SMALL {
        dispatch(SmallProduct {
            a,
            a_stride,
            b,
            b_stride,
            n,
            out,
            p,
        });
        return;
    }
    let a_t = DMatrixView::<f64, Dyn, Dyn>::from_slice_with_strides_generic(
        a,
        Dyn(p),
        Dyn(n),
        Dyn(a_stride),
        Dyn(1),
    );
    let b = DMatrixView::<f64, Dyn, Dyn>::from_slice_with_strides_generic(
        b,
        Dyn(n),
        Dyn(r),
        Dyn(1),
        Dyn(b_stride),
    );
    let mut out = DMatrixViewMut::from_slice_generic(out, Dyn(p), Dyn(r));
    out.gemm(1.0, &a_t, &b, 1.0);
}

/// [`add_transpose_product`], one inner product at a time: each column of A is read once, while it is in the
/// first-level cache.
struct SmallProduct<'a> {
    a: &'a [f64],
    a_stride: usize,
    b: &'a [f64],
    b_stride: usize,
    n: usize,
    out: &'a mut [f64],
    p: usize,
}

impl WithSimd for SmallProduct<'_> {
    type Output = ();

    #[inline(always)]
    #[allow(clippy::inline_always)] // as `dot`
    fn with_simd<S: Simd>(self, _: S) {
        for i in 0..self.p {
            let column = &self.a[i * self.a_stride..i * self.a_stride + self.n];
            for (j, out) in self.out.iter_mut().skip(i).step_by(self.p).enumerate() {
                *out += dot(
                    column,
                    &self.b[j * self.b_stride..j * self.b_stride + self.n],
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transpose_product_is_the_table_of_inner_products() {
        for (n, p, r) in [
            (37, 7, 9),
            (37, 7, 1),
            (3, 7, 9),
            (37, 2, 9),
            (0, 2, 2),
            (4, 0, 0),
        ] {
            check_product(n, p, r);
        }
    }

    fn check_product(n: usize, p: usize, r: usize) {
        let a: Vec<f64> = (0..n * p)
            .map(|i| f64::from(u32::try_from(i).unwrap()).sin())
            .collect();
        let b: Vec<f64> = (0..n * r)
            .map(|i| f64::from(u32::try_from(i).unwrap()).cos())
            .collect();
        let mut out = vec![1.0; p * r];
        add_transpose_product(&a, n, &b, n, n, &mut out, p);
        for i in 0..p {
            for j in 0..r {
                let expected = 1.0 + dot(&a[i * n..(i + 1) * n], &b[j * n..(j + 1) * n]);
                assert!((out[j * p + i] - expected).abs() < 1e-12);
            }
        }
    }
}
