//! What a predictor is made of: a header in words and tables of numbers, checked against one another.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::predictor::link::Link;
use crate::{Error, Kernel, Result};

/// The version of the form of header and tables that this library writes; it reads this and all before.
pub const FORMAT_VERSION: u32 = 1;

/// Classes whose logits may covary.
const MOST_PAIRED: usize = 1024;

/// All of a model but its numbers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// [`FORMAT_VERSION`] of the library that wrote it.
    pub format_version: u32,
    /// Version of the library that wrote it.
    pub library_version: String,
    /// Name of the class that was fitted.
    pub estimator: String,
    /// Number of inputs of a row.
    pub n_features: usize,
    /// Their names, if they had any.
    pub feature_names: Option<Vec<String>>,
    /// Labels; none for regression.
    pub classes: Option<Classes>,
    /// Whether a prediction is one number: y was one-dimensional.
    pub flat: bool,
    /// The functions of x, one block after another.
    pub blocks: Vec<BlockHeader>,
    /// For each linear predictor the functions that it weighs, ascending; none: all of them.
    pub outputs: Vec<Option<Vec<usize>>>,
    /// What is made of the linear predictors.
    pub link: Link,
    /// What the covariances are of.
    pub uncertainty: Uncertainty,
    /// Nodes for the integrals of the probit; none: as many as the number of classes needs.
    pub n_quadrature: Option<usize>,
}

/// Labels of classes, with the NumPy type they had.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Classes {
    /// NumPy's name of the type.
    pub dtype: String,
    /// The labels, in the order of the columns of probabilities.
    pub values: Vec<serde_json::Value>,
}

/// Functions of x.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum BlockHeader {
    /// One that is 1 everywhere.
    Constant,
    /// These inputs as they are.
    Columns(Vec<usize>),
    /// These inputs, each less a number of its own.
    CentredColumns {
        /// Positions of the inputs.
        columns: Vec<usize>,
        /// What is subtracted from each.
        offsets: Vec<f64>,
    },
    /// A kernel about the points in table `points.B`, B being the number of the block.
    Centres(Kernel),
}

/// What the covariances are of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Uncertainty {
    /// There are none.
    None,
    /// `covariance.0`: the weights of every output alike.
    Shared,
    /// `covariance.C`: those of output C.
    Each,
    /// `covariance.0`: those of all outputs, one after another.
    Joint,
    /// `covariance.0`: functions x directions, whose squared projections add up to the variance.
    Directions,
}

/// A table of numbers, row by row.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    /// Lengths of its sides.
    pub shape: Vec<usize>,
    /// Its values.
    pub values: Vec<f64>,
}

/// Header and tables.
#[derive(Debug, Clone, PartialEq)]
pub struct Parts {
    /// All but the numbers.
    pub header: Header,
    /// Tables by name: `points.B`, `weights.C`, `covariance.I`, `noise_variance`.
    pub tables: BTreeMap<String, Table>,
}

fn wrong(what: impl Into<String>) -> Error {
    Error::Format { what: what.into() }
}

impl Parts {
    /// From the header as JSON, which must be of a version known here.
    ///
    /// # Errors
    /// [`Error::Format`].
    pub fn new(header: &str, tables: BTreeMap<String, Table>) -> Result<Self> {
        // First the version, which says how to read the rest.
        #[derive(Deserialize)]
        struct Version {
            format_version: u32,
        }
        let version: Version = serde_json::from_str(header)
            .map_err(|error| wrong(format!("the header is not that of a model: {error}")))?;
        if version.format_version > FORMAT_VERSION {
            let version = version.format_version;
            return Err(wrong(format!(
                "the model has format version {version}, and this library reads up to {FORMAT_VERSION}; \
                 install a newer sparsebayes"
            )));
        }
        let header: Header = serde_json::from_str(header)
            .map_err(|error| wrong(format!("the header does not describe a model: {error}")))?;
        Ok(Self { header, tables })
    }

    /// Checks the header, and that there are the tables it speaks of and no others.
    pub(crate) fn check(&self) -> Result<()> {
        let header = &self.header;
        if header.n_features == 0 {
            return Err(wrong("a model needs at least one feature"));
        }
        if let Some(names) = &header.feature_names {
            expect("feature_names", names.len(), header.n_features)?;
        }
        if let Some(table) = self.tables.values().find(|table| !table.is_sound()) {
            return Err(wrong(format!(
                "a table of shape {:?} must hold as many numbers, all finite",
                table.shape
            )));
        }
        self.check_outputs()?;
        let mut expected = 0;
        for (b, block) in header.blocks.iter().enumerate() {
            self.check_block(b, block)?;
            expected += usize::from(matches!(block, BlockHeader::Centres(_)));
        }
        let n_weights = self.n_weights()?;
        for (c, n) in n_weights.iter().enumerate() {
            self.sized(&format!("weights.{c}"), &[*n])?;
        }
        expected += n_weights.len() + self.check_covariances(&n_weights)?;
        if let Some(noise) = self.tables.get("noise_variance") {
            expected += 1;
            let n = noise.values.len();
            if noise.shape != [n] || !(n == 1 || n == header.outputs.len()) {
                return Err(wrong(
                    "noise_variance must be one number, or one for each output",
                ));
            }
            if noise.values.iter().any(|&v| v < 0.0) {
                return Err(wrong("noise_variance must not be negative"));
            }
        }
        if self.tables.len() != expected {
            return Err(wrong(format!(
                "the model must have {expected} tables, got {}",
                self.tables.len()
            )));
        }
        Ok(())
    }

    fn check_outputs(&self) -> Result<()> {
        let header = &self.header;
        let n_outputs = header.outputs.len();
        let n_classes = header.classes.as_ref().map(|classes| classes.values.len());
        let sensible = match (header.link, n_classes) {
            (Link::Identity, None) => n_outputs > 0 && !(header.flat && n_outputs > 1),
            (Link::Log, None) | (Link::Logistic, Some(2)) => n_outputs == 1,
            (Link::Logistic | Link::Softmax, Some(n)) => n > 2 && n_outputs == n,
            (Link::Probit, Some(n)) => n >= 2 && n_outputs == n,
            _ => false,
        };
        if !sensible {
            return Err(wrong(format!(
                "{n_outputs} outputs with link {:?} do not fit classes {n_classes:?}",
                header.link
            )));
        }
        let fits = match header.uncertainty {
            Uncertainty::None => true,
            Uncertainty::Shared | Uncertainty::Each => {
                !matches!(header.link, Link::Softmax | Link::Probit)
            }
            // Predictions take a number for each pair of classes.
            Uncertainty::Joint => header.link == Link::Softmax && n_outputs <= MOST_PAIRED,
            Uncertainty::Directions => header.link == Link::Identity && n_outputs == 1,
        };
        if fits {
            Ok(())
        } else {
            Err(wrong(format!(
                "uncertainty {:?} does not fit link {:?}",
                header.uncertainty, header.link
            )))
        }
    }

    fn check_block(&self, b: usize, block: &BlockHeader) -> Result<()> {
        let n_features = self.header.n_features;
        match block {
            BlockHeader::Constant => Ok(()),
            BlockHeader::Columns(columns) => check_columns(b, columns, n_features),
            BlockHeader::CentredColumns { columns, offsets } => {
                expect("offsets of columns", offsets.len(), columns.len())?;
                if offsets.iter().any(|offset| !offset.is_finite()) {
                    return Err(wrong(format!("offsets of block {b} must be finite")));
                }
                check_columns(b, columns, n_features)
            }
            BlockHeader::Centres(kernel) => {
                kernel.validate(n_features).map_err(wrong)?;
                let name = format!("points.{b}");
                match self.table(&name)?.shape.as_slice() {
                    [_, columns] if *columns == n_features => Ok(()),
                    shape => Err(wrong(format!(
                        "{name} must have {n_features} columns, got shape {shape:?}"
                    ))),
                }
            }
        }
    }

    /// The number of functions in all blocks; their tables must be there.
    pub(crate) fn n_functions(&self) -> Result<usize> {
        let mut sum = 0;
        for (b, block) in self.header.blocks.iter().enumerate() {
            sum += match block {
                BlockHeader::Constant => 1,
                BlockHeader::Columns(columns) | BlockHeader::CentredColumns { columns, .. } => {
                    columns.len()
                }
                BlockHeader::Centres(_) => self.table(&format!("points.{b}"))?.shape[0],
            };
        }
        Ok(sum)
    }

    /// The number of weights of each output; the functions that they weigh must be there.
    pub(crate) fn n_weights(&self) -> Result<Vec<usize>> {
        let n_functions = self.n_functions()?;
        let size = |(c, functions): (usize, &Option<Vec<usize>>)| {
            let Some(functions) = functions else {
                return Ok(n_functions);
            };
            let ascending = functions.windows(2).all(|pair| pair[0] < pair[1]);
            if ascending && functions.last().is_none_or(|&last| last < n_functions) {
                Ok(functions.len())
            } else {
                Err(wrong(format!(
                    "the functions of output {c} must ascend and lie below {n_functions}"
                )))
            }
        };
        self.header.outputs.iter().enumerate().map(size).collect()
    }

    /// Number of covariance tables, given the number of weights of each output.
    fn check_covariances(&self, n_weights: &[usize]) -> Result<usize> {
        let first = n_weights[0];
        match self.header.uncertainty {
            Uncertainty::None => Ok(0),
            Uncertainty::Shared => {
                let mut pairs = self.header.outputs.windows(2);
                if pairs.any(|pair| pair[0] != pair[1]) {
                    return Err(wrong(
                        "outputs that share a covariance must have the same functions",
                    ));
                }
                self.sized("covariance.0", &[first, first])?;
                Ok(1)
            }
            Uncertainty::Each => {
                for (c, &m) in n_weights.iter().enumerate() {
                    self.sized(&format!("covariance.{c}"), &[m, m])?;
                }
                Ok(n_weights.len())
            }
            Uncertainty::Joint => {
                let m = n_weights.iter().sum();
                self.sized("covariance.0", &[m, m])?;
                Ok(1)
            }
            Uncertainty::Directions => match self.table("covariance.0")?.shape.as_slice() {
                [rows, _] if *rows == first => Ok(1),
                shape => Err(wrong(format!(
                    "covariance.0 must have {first} rows, got shape {shape:?}"
                ))),
            },
        }
    }

    pub(crate) fn table(&self, name: &str) -> Result<&Table> {
        let missing = || wrong(format!("table {name} is missing"));
        self.tables.get(name).ok_or_else(missing)
    }

    fn sized(&self, name: &str, shape: &[usize]) -> Result<()> {
        let got = &self.table(name)?.shape;
        if got == shape {
            Ok(())
        } else {
            Err(wrong(format!(
                "{name} must have shape {shape:?}, got {got:?}"
            )))
        }
    }
}

impl Table {
    fn is_sound(&self) -> bool {
        let size = self
            .shape
            .iter()
            .try_fold(1_usize, |size, &side| size.checked_mul(side));
        size == Some(self.values.len()) && self.values.iter().all(|v| v.is_finite())
    }
}

fn check_columns(b: usize, columns: &[usize], n_features: usize) -> Result<()> {
    match columns.iter().find(|&&j| j >= n_features) {
        Some(column) => Err(wrong(format!(
            "block {b} takes column {column}, counted from 0, of {n_features}"
        ))),
        None => Ok(()),
    }
}

fn expect(what: &str, got: usize, expected: usize) -> Result<()> {
    if got == expected {
        Ok(())
    } else {
        Err(wrong(format!(
            "{what} must have {expected} entries, got {got}"
        )))
    }
}
