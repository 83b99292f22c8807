//! Latency of single predictions: percentiles, allocations and a histogram, as JSON.
//!
//! `cargo bench --bench latency -- MODEL` reads that file; the default model has twenty Gaussian functions of ten features
//! and a constant. The median cost of the clock is subtracted. Other load affects the highest percentiles first.
#![allow(clippy::print_stdout)] // prints the JSON

#[path = "../../tests/core/alloc.rs"]
mod alloc;

use std::collections::BTreeMap;
use std::error::Error;
use std::hint::black_box;
use std::time::Instant;

use serde_json::{Value, json};
use sparsebayes::Predictor;
use sparsebayes::predictor::{Parts, Table};

use alloc::allocations;

const CALLS: usize = 1_000_000;
const ROUNDS: usize = 5;
/// Rows that the calls cycle through.
const ROWS: usize = 1024;

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

/// Twenty Gaussian functions of ten features and a constant.
fn standard() -> sparsebayes::Result<Predictor> {
    let header = r#"{"format_version": 1, "library_version": "0.1.0", "estimator": "RVR", "n_features": 10,
        "feature_names": null, "classes": null, "flat": true,
        "blocks": ["constant", {"centres": {"gaussian": {"inverse_square_widths": [0.1]}}}],
        "outputs": [null], "link": "identity", "uncertainty": "shared", "n_quadrature": null}"#;
    let table = |shape: &[usize], values: Vec<f64>| Table {
        shape: shape.to_vec(),
        values,
    };
    let covariance = (0..21 * 21).map(|i| if i % 22 == 0 { 0.01 } else { 1e-4 });
    let tables = [
        ("points.1".into(), table(&[20, 10], uniform(200, 1))),
        ("weights.0".into(), table(&[21], uniform(21, 2))),
        (
            "covariance.0".into(),
            table(&[21, 21], covariance.collect()),
        ),
        ("noise_variance".into(), table(&[1], vec![0.01])),
    ];
    Predictor::from_parts(Parts::new(header, tables.into())?)
}

/// Measures the nanoseconds of each of [`CALLS`] calls; returns the number of allocations.
fn timed(times: &mut Vec<u64>, rows: &[&[f64]], mut call: impl FnMut(&[f64]) -> f64) -> usize {
    times.clear();
    allocations(|| {
        for x in rows.iter().cycle().take(CALLS) {
            let start = Instant::now();
            black_box(call(black_box(x)));
            let nanoseconds = start.elapsed().as_nanos();
            times.push(u64::try_from(nanoseconds).unwrap_or(u64::MAX));
        }
    })
}

/// Mean nanoseconds per call without reading the clock in between.
fn untimed(rows: &[&[f64]], mut call: impl FnMut(&[f64]) -> f64) -> f64 {
    let start = Instant::now();
    for x in rows.iter().cycle().take(CALLS) {
        black_box(call(black_box(x)));
    }
    start.elapsed().as_nanos() as f64 / CALLS as f64
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Medians over the rounds, and one histogram of all calls.
fn measured(rows: &[&[f64]], clock: u64, mut call: impl FnMut(&[f64]) -> f64) -> Value {
    const RANKS: [(&str, usize); 4] = [
        ("p50", CALLS / 2),
        ("p99", CALLS / 100 * 99),
        ("p99.9", CALLS / 1000 * 999),
        ("max", CALLS - 1),
    ];
    black_box(call(rows[0])); // the first call of a thread allocates
    let mut times = Vec::with_capacity(CALLS);
    let (mut allocations, mut plain) = (0, Vec::new());
    let mut found: [Vec<f64>; 4] = Default::default();
    let mut histogram = BTreeMap::<u64, u64>::new();
    for _ in 0..ROUNDS {
        plain.push(untimed(rows, &mut call));
        allocations += timed(&mut times, rows, &mut call);
        for t in &mut times {
            *t = t.saturating_sub(clock);
        }
        times.sort_unstable();
        for (found, (_, rank)) in found.iter_mut().zip(RANKS) {
            found.push(times[rank] as f64);
        }
        for &t in &times {
            *histogram.entry(t).or_default() += 1;
        }
    }
    let mut result = json!({
        "ns_without_clock": median(plain),
        "allocations": allocations,
        "histogram": histogram.into_iter().collect::<Vec<_>>(),
    });
    for (found, (name, _)) in found.into_iter().zip(RANKS) {
        result[name] = json!(median(found));
    }
    result
}

fn main() -> Result<(), Box<dyn Error>> {
    // Cargo adds an option.
    let path = std::env::args().skip(1).find(|word| !word.starts_with('-'));
    let model = path.map_or_else(standard, Predictor::load)?;
    let values = uniform(ROWS * model.n_features(), 3);
    let rows: Vec<&[f64]> = values.chunks_exact(model.n_features()).collect();
    let mut times = Vec::with_capacity(CALLS);
    timed(&mut times, &rows, |x| x[0]);
    times.sort_unstable();
    let clock = times[CALLS / 2];
    let (mut mean, mut std) = ([0.0], [0.0]);
    let result = json!({
        "calls": CALLS,
        "rounds": ROUNDS,
        "clock": clock,
        "predict_one": measured(&rows, clock, |x| model.predict_one(x).unwrap_or(f64::NAN)),
        "predict_std_into": measured(&rows, clock, |x| {
            let done = model.predict_std_into(x, &mut mean, &mut std);
            done.map_or(f64::NAN, |()| mean[0] + std[0])
        }),
    });
    println!("{result}");
    Ok(())
}
