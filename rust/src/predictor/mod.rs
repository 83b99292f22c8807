//! Fitted models that predict, and nothing else: immutable, shared between threads, without Python.
//!
//! ```
//! use sparsebayes::Predictor;
//! use sparsebayes::predictor::Parts;
//!
//! // y = 1 + 2 x, the second weight known to 0.1, noise of variance 0.04.
//! let header = r#"{"format_version": 1, "library_version": "0.1.0", "estimator": "SparseBayesRegressor",
//!     "n_features": 1, "feature_names": null, "classes": null, "flat": true,
//!     "blocks": ["constant", {"columns": [0]}], "outputs": [null], "link": "identity",
//!     "uncertainty": "shared", "n_quadrature": null}"#;
//! let table = |shape: &[usize], values: &[f64]| sparsebayes::predictor::Table {
//!     shape: shape.to_vec(),
//!     values: values.to_vec(),
//! };
//! let tables = [
//!     ("weights.0".into(), table(&[2], &[1.0, 2.0])),
//!     ("covariance.0".into(), table(&[2, 2], &[0.0, 0.0, 0.0, 0.01])),
//!     ("noise_variance".into(), table(&[1], &[0.04])),
//! ];
//! let model = Predictor::from_parts(Parts::new(header, tables.into())?)?;
//! assert_eq!(model.predict_one(&[3.0])?, 7.0);
//!
//! let (mut mean, mut std) = ([0.0], [0.0]);
//! model.predict_std_into(&[3.0], &mut mean, &mut std)?;
//! assert!((std[0] - 0.13_f64.sqrt()).abs() < 1e-15);
//! # Ok::<(), sparsebayes::Error>(())
//! ```
//!
//! A service loads a model once, and all its threads use it at the same time. Here four of them answer requests, with mean
//! and error bar, until nobody asks any more; a row that is no good is answered with the reason.
//!
//! ```
//! use std::sync::{Arc, Mutex, mpsc};
//! use std::thread;
//!
//! use sparsebayes::{Error, Predictor};
//!
//! struct Request {
//!     row: Vec<f64>,
//!     answer: mpsc::Sender<Result<(f64, f64), Error>>,
//! }
//!
//! fn serve(model: &Predictor, queue: &Mutex<mpsc::Receiver<Request>>) {
//!     loop {
//!         // The lock is for taking a request, not for answering it.
//!         let next = queue.lock().map(|queue| queue.recv());
//!         let Ok(Ok(Request { row, answer })) = next else {
//!             return;
//!         };
//!         let (mut mean, mut std) = ([0.0], [0.0]);
//!         let done = model.predict_std_into(&row, &mut mean, &mut std);
//!         // Who asked may have gone.
//!         let _ = answer.send(done.map(|()| (mean[0], std[0])));
//!     }
//! }
//!
//! let model = Arc::new(Predictor::load("tests/golden/format-1/regression.safetensors")?);
//! let (requests, queue) = mpsc::channel();
//! let queue = Arc::new(Mutex::new(queue));
//! let start = |_| {
//!     let (model, queue) = (Arc::clone(&model), Arc::clone(&queue));
//!     thread::spawn(move || serve(&model, &queue))
//! };
//! let workers: Vec<_> = (0..4).map(start).collect();
//!
//! let ask = |row: Vec<f64>| {
//!     let (answer, answered) = mpsc::channel();
//!     requests.send(Request { row, answer }).unwrap();
//!     answered
//! };
//! let answers: Vec<_> = (0..100).map(|i| ask(vec![0.02 * f64::from(i), 0.5])).collect();
//! for answer in answers {
//!     let (mean, std) = answer.recv().unwrap()?;
//!     assert!(mean.abs() < 2.0 && 0.1 < std && std < 0.2);
//! }
//! assert!(matches!(ask(vec![1.0]).recv().unwrap(), Err(Error::Shape { .. })));
//! assert!(matches!(ask(vec![1.0, f64::NAN]).recv().unwrap(), Err(Error::NonFinite { .. })));
//!
//! drop(requests);
//! for worker in workers {
//!     worker.join().unwrap();
//! }
//! # Ok::<(), Error>(())
//! ```

mod file;
mod linear_predictor;
mod link;
mod outputs;
mod predict;
mod schema;
mod scratch;
mod variance;

use crate::kernel::Points;
use crate::likelihood::probit::Probit;
use crate::{Error, Kernel, Result};

pub use crate::predictor::link::Link;
pub use crate::predictor::schema::{
    BlockHeader, Classes, FORMAT_VERSION, Header, Parts, Table, Uncertainty,
};

use crate::predictor::variance::{Directions, Folded, Joint, Spread};

/// A fitted model.
///
/// Rows of X lie one after another, `n_features` numbers each. A row has the same prediction, to the bit, alone and among
/// others, and whatever the number of threads. Of rows predicted one by one none takes memory, once a thread has
/// predicted its first. A batch is predicted by the calling thread alone, or inside
/// [`with_threads`](crate::with_threads) by as many as that says.
#[derive(Debug, Clone)]
pub struct Predictor {
    parts: Parts,
    blocks: Vec<Block>,
    n_functions: usize,
    outputs: Vec<Output>,
    /// Where the weights of each output begin among those of all, and the end of the last.
    starts: Vec<usize>,
    spread: Spread,
    /// Noise variance of each output.
    noise: Vec<f64>,
    probit: Probit,
}

/// Functions of x.
#[derive(Debug, Clone)]
enum Block {
    Constant,
    /// Inputs, each less its offset.
    Columns {
        columns: Vec<usize>,
        offsets: Vec<f64>,
    },
    Centres {
        kernel: Kernel,
        /// Feature by feature, for one row; row by row they stand in the table.
        points: Points,
        /// Name of that table.
        table: String,
    },
}

/// A linear predictor.
#[derive(Debug, Clone)]
struct Output {
    /// The functions that it weighs, where it is not all.
    functions: Option<Vec<usize>>,
    weights: Vec<f64>,
}

impl Predictor {
    /// Checks parts and makes a model of them.
    ///
    /// # Errors
    /// [`Error::Format`] where they do not fit together.
    pub fn from_parts(parts: Parts) -> Result<Self> {
        parts.check()?;
        let (header, n_functions) = (&parts.header, parts.n_functions()?);
        let blocks = header.blocks.iter().enumerate().map(|(b, block)| {
            Ok(match block {
                BlockHeader::Constant => Block::Constant,
                BlockHeader::Columns(columns) => Block::Columns {
                    columns: columns.clone(),
                    offsets: vec![0.0; columns.len()],
                },
                BlockHeader::CentredColumns { columns, offsets } => Block::Columns {
                    columns: columns.clone(),
                    offsets: offsets.clone(),
                },
                BlockHeader::Centres(kernel) => {
                    let name = format!("points.{b}");
                    let table = parts.table(&name)?;
                    let (n_points, n_features) = (table.shape[0], table.shape[1]);
                    Block::Centres {
                        kernel: kernel.clone(),
                        points: Points::from_rows(&table.values, n_points, n_features),
                        table: name,
                    }
                }
            })
        });
        let blocks = blocks.collect::<Result<Vec<_>>>()?;
        let outputs = header.outputs.iter().enumerate().map(|(c, functions)| {
            Ok(Output {
                functions: functions.clone(),
                weights: parts.table(&format!("weights.{c}"))?.values.clone(),
            })
        });
        let outputs = outputs.collect::<Result<Vec<_>>>()?;
        let mut starts = vec![0];
        for output in &outputs {
            starts.push(starts[starts.len() - 1] + output.weights.len());
        }
        let probit = match (header.link, header.n_quadrature) {
            (Link::Probit, Some(n)) => Probit::new(n).map_err(|error| Error::Format {
                what: error.to_string(),
            })?,
            _ => Probit::for_classes(outputs.len()),
        };
        let noise = match parts.tables.get("noise_variance") {
            None => vec![0.0; outputs.len()],
            Some(table) if table.values.len() == outputs.len() => table.values.clone(),
            Some(table) => vec![table.values[0]; outputs.len()],
        };
        Ok(Self {
            spread: spread(&parts, &outputs)?,
            blocks,
            n_functions,
            outputs,
            starts,
            noise,
            probit,
            parts,
        })
    }

    /// What it is made of.
    #[must_use]
    pub fn parts(&self) -> &Parts {
        &self.parts
    }

    /// What is known about it beside its numbers.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.parts.header
    }

    /// Numbers in a row of X.
    #[must_use]
    pub fn n_features(&self) -> usize {
        self.parts.header.n_features
    }

    /// Linear predictors, and so numbers in a row of regression.
    #[must_use]
    pub fn n_outputs(&self) -> usize {
        self.outputs.len()
    }

    /// Number of classes; 0 for regression.
    #[must_use]
    pub fn n_classes(&self) -> usize {
        let classes = self.parts.header.classes.as_ref();
        classes.map_or(0, |classes| classes.values.len())
    }

    /// Functions that a prediction evaluates.
    #[must_use]
    pub fn n_functions(&self) -> usize {
        self.n_functions
    }

    /// Numbers in a row of [`Predictor::predict_into`]: one for each output, or for each class.
    #[must_use]
    pub fn n_predicted(&self) -> usize {
        if self.is_classifier() {
            self.n_classes()
        } else {
            self.n_outputs()
        }
    }

    /// Whether it predicts classes.
    #[must_use]
    pub fn is_classifier(&self) -> bool {
        self.parts.header.link.is_classification()
    }
}

fn spread(parts: &Parts, outputs: &[Output]) -> Result<Spread> {
    let table = |i: usize| parts.table(&format!("covariance.{i}"));
    let folded = |i: usize| {
        let table = table(i)?;
        Ok(Folded::new(&table.values, table.shape[0]))
    };
    Ok(match parts.header.uncertainty {
        Uncertainty::None => Spread::None,
        Uncertainty::Shared => Spread::Shared(folded(0)?),
        Uncertainty::Each => Spread::Each((0..outputs.len()).map(folded).collect::<Result<_>>()?),
        Uncertainty::Joint => {
            let sizes = outputs.iter().map(|output| output.weights.len());
            Spread::Joint(Joint::new(&table(0)?.values, sizes))
        }
        Uncertainty::Directions => {
            let table = table(0)?;
            Spread::Directions(Directions::new(&table.values, table.shape[1]))
        }
    })
}
