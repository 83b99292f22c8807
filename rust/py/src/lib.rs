//! Python binding of the `sparsebayes` crate.

mod arrays;
mod blocks;
mod checkpoint;
mod covariance;
mod dictionary;
mod errors;
mod fit;
mod groups;
mod kernel;
mod memory;
mod outputs;
mod posterior;
mod predictor;
mod probit;
mod provider;
mod retargeted;
mod row_part;
mod runner;
mod sufficient;

/// The compiled core of sparsebayes.
#[pyo3::pymodule(gil_used = false)]
mod _core {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::blocks::fit_kernel_in_blocks;
    #[pymodule_export]
    use crate::covariance::{covariance_evidence, radial_evidence};
    #[pymodule_export]
    use crate::errors::NumericalError;
    #[pymodule_export]
    use crate::fit::{fit_dense, fit_kernel};
    #[pymodule_export]
    use crate::groups::fit_groups;
    #[pymodule_export]
    use crate::kernel::PyKernel;
    #[pymodule_export]
    use crate::outputs::{PyOutputPosterior, fit_dense_outputs, fit_kernel_outputs};
    #[pymodule_export]
    use crate::posterior::PyPosterior;
    #[pymodule_export]
    use crate::predictor::PyPredictor;
    #[pymodule_export]
    use crate::probit::{probit_expectations, probit_log_probabilities, probit_probabilities};
    #[pymodule_export]
    use crate::provider::{PyCancelled, fit_provider};
    #[pymodule_export]
    use crate::retargeted::{PyRetargetedFit, PyTopDownFit};
    #[pymodule_export]
    use crate::row_part::PyRowPart;

    #[pymodule_export]
    use crate::sufficient::PySufficientStatistics;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("PROBIT_NODES", sparsebayes::internal::Probit::NODES)?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
