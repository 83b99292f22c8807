//! Model files: the safetensors format, with the header in its metadata.
//!
//! Loading executes nothing in a file and allocates no more memory than the file has bytes.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};

use crate::Result;
use crate::predictor::Predictor;
use crate::predictor::schema::{Parts, Table, wrong};

/// The metadata entry that holds the header.
const KEY: &str = "sparsebayes";
/// Largest file that is read: no sparse model has a billion numbers.
const MAX_BYTES: u64 = 8 << 30;

impl Predictor {
    /// Reads a model file.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) if it cannot be read, [`Error::Format`](crate::Error::Format) if it is not a valid model of a supported version.
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
    /// [`Error::Format`](crate::Error::Format) if they are not a valid model of a supported version.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let broken = |error: safetensors::SafeTensorError| {
            wrong(format!("this is not a whole safetensors file: {error:?}"))
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
    /// [`Error::Format`](crate::Error::Format) if the header cannot be written as JSON, which does not happen for loaded models.
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
    /// [`Error::Io`](crate::Error::Io); an existing file is then unchanged.
    #[cfg(feature = "save")]
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        use std::io::Write;

        let (path, bytes) = (path.as_ref(), self.to_bytes()?);
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
