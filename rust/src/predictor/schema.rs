//! The parts of a predictor, a header and tables of numbers, and their validation.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::likelihood::link::Link;
use crate::{Error, Kernel, Result};

/// The format version that this library writes; it reads this version and all earlier ones.
pub const FORMAT_VERSION: u32 = 2;

/// The first format version with [`Header::growths`]; models without them are written as version 1.
const VERSION_WITH_GROWTHS: u32 = 2;

/// Most classes with joint covariances.
const MAX_JOINT_CLASSES: usize = 1024;

/// Everything about a model except its numbers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// Version of the format, at most [`FORMAT_VERSION`].
    pub format_version: u32,
    /// Version of the library that wrote it.
    pub library_version: String,
    /// Name of the class that was fitted.
    pub estimator: String,
    /// Number of features.
    pub n_features: usize,
    /// Names of the features, if the training data had names.
    pub feature_names: Option<Vec<String>>,
    /// Class labels; `None` for regression.
    pub classes: Option<Classes>,
    /// Whether y was one-dimensional, so that a prediction is one number.
    pub flat: bool,
    /// The basis functions, in blocks.
    pub blocks: Vec<BlockHeader>,
    /// For each linear predictor the ascending indices of its basis functions; `None`: all of them.
    pub outputs: Vec<Option<Vec<usize>>>,
    /// The link from linear predictors to targets.
    pub link: Link,
    /// The form of the weight covariances.
    pub uncertainty: Uncertainty,
    /// Quadrature nodes of the probit; `None`: the number that the number of classes needs.
    pub n_quadrature: Option<usize>,
    /// Kernels k by which variances grow away from the data: `v_c ((1 - e) k(x, x) - |L^-1 k(Z, x)|^2)` for output c, if
    /// positive. The share e of k(x, x) may be rounding: 1e-9 for a Matern kernel, 1e-6 for all others.
    /// Tables of kernel G: `landmarks.G`, Z; `factor.G`, the rows of the lower triangle of L; `scale.G`, v of each output.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub growths: Vec<Kernel>,
}

/// Class labels and their NumPy type.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Classes {
    /// NumPy's name of the type.
    pub dtype: String,
    /// The labels, in the order of the probabilities.
    pub values: Vec<serde_json::Value>,
}

/// A block of basis functions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum BlockHeader {
    /// The constant 1.
    Constant,
    /// These features.
    Columns(Vec<usize>),
    /// These features, each minus an offset.
    CentredColumns {
        /// Indices of the features.
        columns: Vec<usize>,
        /// The offset of each feature.
        offsets: Vec<f64>,
    },
    /// A kernel centred at each point of table `points.B`, where B is the index of the block.
    Centres(Kernel),
}

/// The form of the weight covariances.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Uncertainty {
    /// No covariances.
    None,
    /// `covariance.0`: one covariance of the weights for all outputs.
    Shared,
    /// `covariance.C`: the covariance of the weights of output C.
    Each,
    /// `covariance.0`: the joint covariance of the weights of all outputs, one output after another.
    Joint,
    /// `covariance.0`: functions x directions; the variance is the sum of the squared projections.
    Directions,
}

/// An array of numbers in row-major order.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    /// Its dimensions.
    pub shape: Vec<usize>,
    /// Its values.
    pub values: Vec<f64>,
}

/// Header and tables.
#[derive(Debug, Clone, PartialEq)]
pub struct Parts {
    /// Everything except the numbers.
    pub header: Header,
    /// Tables by name: `points.B`, `weights.C`, `covariance.I`, `noise_variance`, and those of [`Header::growths`].
    pub tables: BTreeMap<String, Table>,
}

/// [`Error::Format`] with this message.
pub(crate) fn wrong(what: impl Into<String>) -> Error {
    Error::Format { what: what.into() }
}

impl Parts {
    /// Parses a JSON header.
    ///
    /// # Errors
    /// [`Error::Format`] if it is not a header of a supported version.
    pub fn new(header: &str, tables: BTreeMap<String, Table>) -> Result<Self> {
        // The version comes first, because it determines how to read the rest.
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

    /// Checks the header, and that exactly the tables that it needs are present.
    pub(crate) fn check(&self) -> Result<()> {
        let header = &self.header;
        if header.n_features == 0 {
            return Err(wrong("a model needs at least one feature"));
        }
        if let Some(names) = &header.feature_names {
            expect("feature_names", names.len(), header.n_features)?;
        }
        if let Some(table) = self.tables.values().find(|table| !table.is_valid()) {
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
        expected += self.check_growths()?;
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
        let is_valid = match (header.link, n_classes) {
            (Link::Identity, None) => n_outputs > 0 && !(header.flat && n_outputs > 1),
            (Link::Log | Link::LogContinuous, None) | (Link::Logistic, Some(2)) => n_outputs == 1,
            (Link::Logistic | Link::Softmax, Some(n)) => n > 2 && n_outputs == n,
            (Link::Probit, Some(n)) => n >= 2 && n_outputs == n,
            _ => false,
        };
        if !is_valid {
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
            // Predictions need memory for each pair of classes.
            Uncertainty::Joint => header.link == Link::Softmax && n_outputs <= MAX_JOINT_CLASSES,
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
                self.check_centres(kernel, &format!("points.{b}")).map(drop)
            }
        }
    }

    /// Checks a kernel and the table of its centres; returns their number.
    fn check_centres(&self, kernel: &Kernel, name: &str) -> Result<usize> {
        let n_features = self.header.n_features;
        kernel.validate(n_features).map_err(wrong)?;
        match self.table(name)?.shape.as_slice() {
            [rows, columns] if *columns == n_features => Ok(*rows),
            shape => Err(wrong(format!(
                "{name} must have {n_features} columns, got shape {shape:?}"
            ))),
        }
    }

    /// Checks the growths; returns the number of their tables.
    fn check_growths(&self) -> Result<usize> {
        let header = &self.header;
        let has_variances = !matches!(header.uncertainty, Uncertainty::None | Uncertainty::Joint);
        if !header.growths.is_empty()
            && (header.format_version < VERSION_WITH_GROWTHS
                || header.link.is_classification()
                || !has_variances)
        {
            return Err(wrong(
                "growths are for regression with covariances, from format version 2 on",
            ));
        }
        for (g, kernel) in header.growths.iter().enumerate() {
            let m = self.check_centres(kernel, &format!("landmarks.{g}"))?;
            self.sized(&format!("factor.{g}"), &[m.saturating_mul(m + 1) / 2])?;
            self.sized(&format!("scale.{g}"), &[header.outputs.len()])?;
            let factor = &self.table(&format!("factor.{g}"))?.values;
            if (0..m).any(|i| factor[i * (i + 3) / 2] <= 0.0) {
                return Err(wrong(format!("factor.{g} must have a positive diagonal")));
            }
        }
        Ok(3 * header.growths.len())
    }

    /// The number of basis functions in all blocks; their tables must be present.
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

    /// The number of weights of each output; checks the indices of their basis functions.
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

    /// Checks the covariance tables, given the number of weights of each output; returns their number.
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
    fn is_valid(&self) -> bool {
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
