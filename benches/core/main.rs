//! Benchmarks of the core: fits to the surface of Tipping & Faul (2003), and their main parts.
//!
//! Data are generated outside the timers, from fixed seeds. Compare groups of one run, or runs on one idle computer.

use std::hint::black_box;
use std::ops::ControlFlow;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use sparsebayes::internal::Cholesky;
use sparsebayes::{
    DenseDesign, Design, Kernel, KernelDesign, Likelihood, Observations, Points, Settings,
    Statistics, fit_rows,
};

/// Uniform numbers in [-1, 1) from a linear congruential generator.
fn uniform(n: usize, mut seed: u64) -> Vec<f64> {
    let mut next = || {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (seed >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
    };
    (0..n).map(|_| next()).collect()
}

/// The sinc surface of Tipping & Faul (2003), section 5.1.
fn surface(n: usize) -> (Vec<f64>, Vec<f64>) {
    let x: Vec<f64> = uniform(2 * n, 1).into_iter().map(|u| 10.0 * u).collect();
    let noise = uniform(n, 2);
    let targets = x.chunks_exact(2).zip(noise).map(|(p, e)| {
        let r = p[0].hypot(p[1]).max(1e-9);
        r.sin() / r + 0.17 * e
    });
    let targets = targets.collect();
    (x, targets)
}

fn gaussian() -> Kernel {
    Kernel::Gaussian {
        inverse_square_widths: vec![0.16],
    }
}

fn run(design: &dyn Design, likelihood: Likelihood, target: &[f64]) -> usize {
    let rules = Settings::default()
        .check()
        .expect("default settings are valid");
    let mut data =
        Observations::new(design, likelihood, target.to_vec(), None).expect("valid data");
    let mut watch = |_: &sparsebayes::Step| ControlFlow::Continue(());
    fit_rows(&mut data, &rules, &mut watch)
        .expect("a fit")
        .active
        .len()
}

fn fits(c: &mut Criterion) {
    let mut group = c.benchmark_group("fit");
    group.sample_size(10);
    for n in [500, 1000, 2000] {
        let (x, t) = surface(n);
        let lazy = KernelDesign::new(&x, &x, 2, vec![gaussian()], true).expect("a design");
        let stored = lazy.materialise(None).expect("memory");
        let labels: Vec<f64> = t.iter().map(|&t| f64::from(u8::from(t > 0.1))).collect();
        group.bench_function(BenchmarkId::new("regression, stored", n), |b| {
            b.iter(|| run(black_box(&stored), Likelihood::Gaussian, &t));
        });
        group.bench_function(BenchmarkId::new("regression, lazy", n), |b| {
            b.iter(|| run(black_box(&lazy), Likelihood::Gaussian, &t));
        });
        group.bench_function(BenchmarkId::new("classification, stored", n), |b| {
            b.iter(|| run(black_box(&stored), Likelihood::Bernoulli, &labels));
        });
    }
    group.finish();
}

fn columns(c: &mut Criterion) {
    let mut group = c.benchmark_group("random columns");
    for (n, k) in [(1000, 100), (1000, 1000)] {
        let phi = uniform(n * k, 3);
        let noise = uniform(n, 4);
        let t: Vec<f64> = (0..n)
            .map(|i| 2.0 * phi[i] - phi[n + i] + 0.3 * noise[i])
            .collect();
        let design = DenseDesign::new(phi, n, k).expect("a design");
        group.bench_function(BenchmarkId::new("regression", format!("{n} x {k}")), |b| {
            b.iter(|| run(black_box(&design), Likelihood::Gaussian, &t));
        });
    }
    group.finish();
}

fn kernels(c: &mut Criterion) {
    let mut group = c.benchmark_group("kernel column of 10000 points");
    for features in [2, 20] {
        let rows = uniform(10_000 * features, 5);
        let points = Points::from_rows(&rows, 10_000, features);
        let mut out = vec![0.0; 10_000];
        for (name, kernel) in [("gaussian", gaussian()), ("linear", Kernel::Linear)] {
            group.bench_function(BenchmarkId::new(name, features), |b| {
                b.iter(|| {
                    kernel.column_into(black_box(&points), &rows[..features], 0..10_000, &mut out);
                });
            });
        }
    }
    group.finish();
}

fn cholesky(c: &mut Criterion) {
    let mut group = c.benchmark_group("cholesky");
    for m in [30, 100, 300] {
        let values = uniform(m * m, 6);
        let element = |i: usize, j: usize| {
            let dot: f64 = (0..m).map(|k| values[i * m + k] * values[j * m + k]).sum();
            dot / m as f64 + if i == j { 1.0 } else { 0.0 }
        };
        let matrix: Vec<f64> = (0..m * m).map(|at| element(at / m, at % m)).collect();
        let mut factor = Cholesky::with_capacity(m + 1);
        factor
            .refactor(m, |i, j| matrix[i * m + j])
            .expect("positive definite");
        let column = vec![0.01; m];
        group.bench_function(BenchmarkId::new("refactor", m), |b| {
            b.iter(|| factor.refactor(m, |i, j| matrix[i * m + j]));
        });
        group.bench_function(BenchmarkId::new("diagonal up and down", m), |b| {
            b.iter(|| {
                factor
                    .update_diagonal(m / 2, black_box(0.5))
                    .and_then(|()| factor.update_diagonal(m / 2, -0.5))
            });
        });
        group.bench_function(BenchmarkId::new("push and remove", m), |b| {
            b.iter(|| {
                let mut row = black_box(&column).clone();
                factor.solve_lower_in_place(&mut row);
                factor.push_solved(&row, 2.0).expect("positive pivot");
                factor.remove(m / 2);
                factor.refactor(m, |i, j| matrix[i * m + j])
            });
        });
    }
    group.finish();
}

/// Passes over the dictionary with and without Gram columns, and the Gram matrix of a working set.
fn passes(c: &mut Criterion) {
    let mut group = c.benchmark_group("surface, lazy kernel");
    group.sample_size(10);
    for n in [1000, 4000] {
        let (x, t) = surface(n);
        let design = KernelDesign::new(&x, &x, 2, vec![gaussian()], true).expect("a design");
        let mut data =
            Observations::new(&design, Likelihood::Gaussian, t, None).expect("valid data");
        let strided = |k: usize| -> Vec<usize> { (0..k).map(|i| i * n / k).collect() };
        let (active, working_set) = (strided(40), strided(256));
        let mu = vec![0.01; active.len()];
        for (name, wanted) in [("refresh", &[][..]), ("refresh, 40 new columns", &active)] {
            group.bench_function(BenchmarkId::new(name, n), |b| {
                b.iter(|| data.sweep(black_box(&active), &mu, wanted));
            });
        }
        group.bench_function(BenchmarkId::new("Gram matrix of 256", n), |b| {
            b.iter(|| data.among(black_box(&active), &mu, &working_set));
        });
    }
    group.finish();
}

/// A dictionary that is a single working set, so that the greedy loop takes nearly all of the time.
fn inner(c: &mut Criterion) {
    let (x, t) = surface(400);
    let design = KernelDesign::new(&x, &x[..512], 2, vec![gaussian()], true)
        .and_then(|lazy| lazy.materialise(None))
        .expect("a design");
    c.bench_function("inner loop, 256 functions", |b| {
        b.iter(|| run(black_box(&design), Likelihood::Gaussian, &t));
    });
}

criterion_group!(benches, fits, passes, inner, columns, kernels, cholesky);
criterion_main!(benches);
