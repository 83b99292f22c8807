//! Many threads predict with one model while others fit: the same bits as alone. `make sanitize` looks for races in it.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;

use sparsebayes::{Error, Observations, Predictor, Settings, fit, with_threads};

use crate::problems::{Problem, Uniform, columns, fit_design, labels};

const N_THREADS: usize = 32;
const N_ROUNDS: usize = 20;
/// More than a batch.
const N_ROWS: usize = 1100;

fn golden() -> Vec<Predictor> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/format-1");
    let names = ["regression", "softmax", "probit", "outputs"];
    let files = names.map(|name| folder.join(name).with_extension("safetensors"));
    files.map(|file| Predictor::load(file).unwrap()).into()
}

/// The predictions of a model: as a batch, or row after row.
fn asked(model: &Predictor, x: &[f64], one_by_one: bool) -> Vec<u64> {
    let (width, d) = (model.n_predicted(), model.n_features());
    let mut out = vec![0.0; x.len() / d * width];
    if one_by_one {
        for (x, out) in x.chunks_exact(d).zip(out.chunks_exact_mut(width)) {
            model.predict_into(x, out).unwrap();
        }
    } else {
        model.predict_into(x, &mut out).unwrap();
    }
    out.iter().map(|v| v.to_bits()).collect()
}

fn fitted(problem: &Problem, n_threads: usize) -> Vec<u64> {
    let posterior = with_threads(Some(n_threads), || {
        let (posterior, _) = fit_design(
            &problem.design(),
            problem.likelihood,
            &problem.t,
            None,
            Settings::default(),
        );
        posterior
    });
    posterior.unwrap().mu.iter().map(|v| v.to_bits()).collect()
}

#[test]
fn many_threads_ask_one_model_while_others_fit() {
    let models = golden();
    let x: Vec<Vec<f64>> = models
        .iter()
        .map(|model| Uniform(3).take(N_ROWS * model.n_features()).collect())
        .collect();
    let expected: Vec<_> = models
        .iter()
        .zip(&x)
        .map(|(model, x)| asked(model, x, false))
        .collect();
    let problems = [columns(200, 60, 1), labels(200, 60, 1)];
    let start = Barrier::new(N_THREADS + problems.len());
    thread::scope(|scope| {
        for k in 0..N_THREADS {
            let (models, x, expected, start) = (&models, &x, &expected, &start);
            scope.spawn(move || {
                start.wait();
                for round in 0..N_ROUNDS {
                    let which = (k + round) % models.len();
                    let (model, x) = (&models[which], &x[which]);
                    // One thread in eight has helpers of its own.
                    let found = if k % 8 == 0 {
                        with_threads(Some(2), || asked(model, x, false)).unwrap()
                    } else {
                        asked(model, x, k % 2 == 1)
                    };
                    assert!(found == expected[which], "thread {k}, model {which}");
                }
            });
        }
        for problem in &problems {
            let start = &start;
            scope.spawn(move || {
                let alone = fitted(problem, 2);
                start.wait();
                for _ in 0..N_ROUNDS {
                    assert_eq!(fitted(problem, 2), alone);
                }
            });
        }
    });
}

/// A flag raised by another thread ends a fit.
#[test]
fn a_fit_is_cancelled_from_another_thread() {
    let problem = columns(400, 200, 5);
    let design = problem.design();
    let flag = Arc::new(AtomicBool::new(false));
    let (begun, raised) = (Barrier::new(2), Barrier::new(2));
    thread::scope(|scope| {
        scope.spawn(|| {
            begun.wait();
            flag.store(true, Ordering::Relaxed);
            raised.wait();
        });
        let stats = Observations::new(&design, problem.likelihood, problem.t.clone(), None);
        let mut stats = stats.unwrap().cancelled_by(Arc::clone(&flag));
        let mut n_steps = 0;
        let ended = fit(
            &mut stats,
            &Settings::default().check().unwrap(),
            &mut |_| {
                n_steps += 1;
                if n_steps == 1 {
                    begun.wait();
                    raised.wait();
                }
                ControlFlow::Continue(())
            },
        );
        assert!(matches!(ended, Err(Error::Interrupted)), "{n_steps} steps");
    });
}

#[test]
fn the_number_of_threads_does_not_change_a_model_of_many_functions() {
    // So many that each pass over the candidates is cut into pieces.
    let problem = columns(450, 420, 5);
    let (one, three) = (fitted(&problem, 1), fitted(&problem, 3));
    assert!(one.len() > 80, "{}", one.len());
    assert_eq!(one, three);
}
