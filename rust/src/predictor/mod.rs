//! Prediction with fitted models, without training code or Python. Models are immutable and shared between threads.
//!
//! ```
//! use sparsebayes::Predictor;
//! use sparsebayes::predictor::Parts;
//!
//! // y = 1 + 2 x; the second weight has std 0.1, the noise variance is 0.04.
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
//! A service loads a model once and shares it between threads; `examples/service/rust` is one.

mod gradient;
#[cfg(feature = "fit")]
mod of_posterior;
mod predict;
mod schema;
mod variance;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};

use crate::kernel::Points;
use crate::likelihood::probit::Probit;
use crate::{Error, Kernel, Result};

pub use crate::likelihood::link::Link;
pub use crate::predictor::schema::{
    BlockHeader, Classes, FORMAT_VERSION, Header, Parts, Table, Uncertainty,
};

use crate::predictor::schema::wrong;
use crate::predictor::variance::{Directions, Factor, Joint, QuadraticForm, WeightCovariance};

/// The metadata entry that holds the header.
const KEY: &str = "sparsebayes";
/// Largest file that is read: no sparse model has a billion numbers.
const MAX_BYTES: u64 = 8 << 30;

/// A fitted model.
///
/// X is row-major with `n_features` numbers per row. The bits of a prediction do not depend on the other rows or on the
/// number of threads. After its first prediction a thread predicts single rows without allocating memory. A batch is
/// predicted by the calling thread, or inside [`with_threads`](crate::with_threads) by several threads.
#[derive(Debug, Clone)]
pub struct Predictor {
    parts: Parts,
    blocks: Vec<Block>,
    n_functions: usize,
    outputs: Vec<Output>,
    covariance: WeightCovariance,
    growths: Vec<Growth>,
    /// Noise variance of each output.
    noise: Vec<f64>,
    probit: Probit,
}

/// A block of basis functions.
#[derive(Debug, Clone)]
enum Block {
    Constant,
    /// Features, each minus its offset.
    Columns {
        columns: Vec<usize>,
        offsets: Vec<f64>,
    },
    Centres {
        kernel: Kernel,
        /// The centres feature by feature, for single rows.
        points: Points,
        /// Name of the table with the centres row by row, for batches.
        table: String,
    },
}

/// The variance of a Gaussian process with a kernel, given its values at landmarks: see [`Header::growths`].
#[derive(Debug, Clone)]
struct Growth {
    kernel: Kernel,
    /// The kernel centred at the landmarks.
    landmarks: Block,
    factor: Factor,
    scale: Vec<f64>,
}

/// A linear predictor.
#[derive(Debug, Clone)]
struct Output {
    /// Indices of its basis functions; `None`: all of them.
    functions: Option<Vec<usize>>,
    weights: Vec<f64>,
}

impl Predictor {
    /// Builds a model from its parts.
    ///
    /// # Errors
    /// [`Error::Format`] if they are inconsistent.
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
                BlockHeader::Centres(kernel) => centres(&parts, kernel, format!("points.{b}"))?,
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
            covariance: covariance(&parts, &outputs)?,
            growths: growths(&parts)?,
            blocks,
            n_functions,
            outputs,
            noise,
            probit,
            parts,
        })
    }

    /// The header and the tables.
    #[must_use]
    pub fn parts(&self) -> &Parts {
        &self.parts
    }

    /// Everything about the model except its numbers.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.parts.header
    }

    /// Number of features.
    #[must_use]
    pub fn n_features(&self) -> usize {
        self.parts.header.n_features
    }

    /// Number of linear predictors, which are the outputs of a regression.
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

    /// Number of basis functions that a prediction evaluates.
    #[must_use]
    pub fn n_functions(&self) -> usize {
        self.n_functions
    }

    /// Numbers per row of [`Predictor::predict_into`]: one for each output or class.
    #[must_use]
    pub fn n_predicted(&self) -> usize {
        if self.is_classifier() {
            self.n_classes()
        } else {
            self.n_outputs()
        }
    }

    /// Whether the model predicts classes.
    #[must_use]
    pub fn is_classifier(&self) -> bool {
        self.parts.header.link.is_classification()
    }
}

fn centres(parts: &Parts, kernel: &Kernel, name: String) -> Result<Block> {
    let table = parts.table(&name)?;
    Ok(Block::Centres {
        kernel: kernel.clone(),
        points: Points::from_rows(&table.values, table.shape[0], table.shape[1]),
        table: name,
    })
}

fn growths(parts: &Parts) -> Result<Vec<Growth>> {
    let kernels = parts.header.growths.iter().enumerate();
    kernels
        .map(|(g, kernel)| {
            let landmarks = centres(parts, kernel, format!("landmarks.{g}"))?;
            let factor = &parts.table(&format!("factor.{g}"))?.values;
            Ok(Growth {
                kernel: kernel.clone(),
                factor: Factor::new(factor, landmarks.len()),
                landmarks,
                scale: parts.table(&format!("scale.{g}"))?.values.clone(),
            })
        })
        .collect()
}

fn covariance(parts: &Parts, outputs: &[Output]) -> Result<WeightCovariance> {
    let table = |i: usize| parts.table(&format!("covariance.{i}"));
    let folded = |i: usize| {
        let table = table(i)?;
        Ok(QuadraticForm::new(&table.values, table.shape[0]))
    };
    Ok(match parts.header.uncertainty {
        Uncertainty::None => WeightCovariance::None,
        Uncertainty::Shared => WeightCovariance::Shared(folded(0)?),
        Uncertainty::Each => {
            WeightCovariance::Each((0..outputs.len()).map(folded).collect::<Result<_>>()?)
        }
        Uncertainty::Joint => {
            let sizes = outputs.iter().map(|output| output.weights.len());
            WeightCovariance::Joint(Joint::new(&table(0)?.values, sizes))
        }
        Uncertainty::Directions => {
            let table = table(0)?;
            WeightCovariance::Directions(Directions::new(&table.values, table.shape[1]))
        }
    })
}

/// Model files: the safetensors format, with the header in its metadata. Loading executes nothing in a file and allocates no more memory
/// than the file has bytes.
impl Predictor {
    /// Reads a model file.
    ///
    /// # Errors
    /// [`Error::Io`] if it cannot be read, [`Error::Format`] if it is not a valid model of a supported version.
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        let file = File::open(path)?;
        let meta = file.metadata()?;
        if !meta.is_file() {
            return Err(wrong("a model is loaded from a regular file"));
        }
        if meta.len() > MAX_BYTES {
            let len = meta.len();
            return Err(wrong(format!(
                "a model file has at most {MAX_BYTES} bytes, got {len}"
            )));
        }
        let mut bytes = Vec::new();
        // The limit also holds if the file grows meanwhile.
        file.take(meta.len()).read_to_end(&mut bytes)?;
        Self::from_bytes(&bytes)
    }

    /// Reads the bytes of a model file.
    ///
    /// # Errors
    /// [`Error::Format`] if they are not a valid model of a supported version.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let broken = |error: safetensors::SafeTensorError| {
            wrong(format!(
                "this is not a model that was saved: not a whole safetensors file ({error:?})"
            ))
        };
        let (_, metadata) = SafeTensors::read_metadata(bytes).map_err(broken)?;
        let header = metadata.metadata().as_ref().and_then(|map| map.get(KEY));
        let header = header.ok_or_else(|| {
            wrong("this safetensors file does not hold a model: its metadata has no entry 'sparsebayes'")
        })?;
        let tensors = SafeTensors::deserialize(bytes).map_err(broken)?;
        let mut tables = BTreeMap::new();
        for (name, view) in tensors.iter() {
            tables.insert(name.to_owned(), table(name, &view)?);
        }
        Self::from_parts(Parts::new(header, tables)?)
    }

    /// The bytes of a model file.
    ///
    /// # Errors
    /// [`Error::Format`] if the header cannot be written as JSON, which does not happen for loaded models.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let parts = self.parts();
        let header =
            serde_json::to_string(&parts.header).map_err(|error| wrong(error.to_string()))?;
        let broken = |error: safetensors::SafeTensorError| wrong(format!("{error:?}"));
        let bytes: Vec<(&str, &[usize], Vec<u8>)> = parts
            .tables
            .iter()
            .map(|(name, table)| {
                let values = table.values.iter().flat_map(|v| v.to_le_bytes());
                (name.as_str(), table.shape.as_slice(), values.collect())
            })
            .collect();
        let views = bytes
            .iter()
            .map(|(name, shape, bytes)| {
                Ok((*name, TensorView::new(Dtype::F64, shape.to_vec(), bytes)?))
            })
            .collect::<Result<Vec<_>, _>>()
            .map_err(broken)?;
        let metadata = [(KEY.to_owned(), header)].into_iter().collect();
        safetensors::serialize(views, Some(metadata)).map_err(broken)
    }

    /// Writes a model file atomically: to a temporary file in the same folder, which is then renamed.
    ///
    /// # Errors
    /// [`Error::Io`]; an existing file is then unchanged.
    #[cfg(feature = "save")]
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        use std::io::Write;

        let (path, bytes) = (path.as_ref(), self.to_bytes()?);
        if std::fs::metadata(path).is_ok_and(|found| !found.is_file() && !found.is_dir()) {
            // A pipe or a device, which a file must not replace.
            return Ok(std::fs::write(path, bytes)?);
        }
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let mut builder = tempfile::Builder::new();
        builder.prefix(".sparsebayes-").suffix(".tmp");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            // The permissions of any new file, instead of those of a temporary one; the umask applies.
            builder.permissions(std::fs::Permissions::from_mode(0o666));
        }
        let mut file = builder.tempfile_in(folder)?;
        file.write_all(&bytes)?;
        file.as_file().sync_all()?;
        file.persist(path).map_err(|error| error.error)?;
        #[cfg(unix)]
        // The rename is durable once the folder is synced, which some file systems cannot do.
        let _ = File::open(folder).and_then(|folder| folder.sync_all());
        Ok(())
    }
}

fn table(name: &str, view: &TensorView<'_>) -> Result<Table> {
    if view.dtype() != Dtype::F64 {
        let got = view.dtype();
        return Err(wrong(format!(
            "table {name} must be of type F64, got {got:?}"
        )));
    }
    let (numbers, _) = view.data().as_chunks::<8>();
    Ok(Table {
        shape: view.shape().to_vec(),
        values: numbers
            .iter()
            .map(|bytes| f64::from_le_bytes(*bytes))
            .collect(),
    })
}
