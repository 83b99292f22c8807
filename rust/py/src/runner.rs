//! Runs a fit on another thread while this one checks for signals and calls the callback.

use std::convert::Infallible;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use pyo3::prelude::*;
use sparsebayes::internal::BlockCheckpoint;
use sparsebayes::internal::run_alongside;
use sparsebayes::{Action, Error, Step};

use crate::arrays::as_index;
use crate::checkpoint::to_dict;
use crate::errors::{internal, to_python};

/// Interval between two checks for signals, and so the delay of Ctrl-C.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(50);

/// The content of a report.
enum Event {
    Step(Step),
    BlockCheckpoint(Box<BlockCheckpoint>),
}

/// A message from the worker, with a channel for the reply that it waits for.
struct Report {
    event: Event,
    reply: SyncSender<ControlFlow<()>>,
}

/// The worker's end: the cancellation flag, and methods that report steps and checkpoints.
pub(crate) struct Reporter {
    pub(crate) cancel: Arc<AtomicBool>,
    /// Alive as long as the fit.
    pub(crate) running: Arc<()>,
    with_steps: bool,
    with_checkpoints: bool,
    /// Dropping it tells the interpreter's thread that the work is done.
    reports: SyncSender<Report>,
}

impl Reporter {
    /// Reports a step and returns whether to continue.
    pub(crate) fn step(&self, step: &Step) -> ControlFlow<()> {
        if self.cancel.load(Ordering::Relaxed) {
            return ControlFlow::Break(());
        }
        if self.with_steps {
            self.send(Event::Step(*step))
        } else {
            ControlFlow::Continue(())
        }
    }

    /// Passes on a checkpoint and waits until it is stored.
    pub(crate) fn checkpoint(&self, checkpoint: &BlockCheckpoint) -> Result<(), Error> {
        if self.with_checkpoints
            && self
                .send(Event::BlockCheckpoint(Box::new(checkpoint.clone())))
                .is_break()
        {
            return Err(Error::Interrupted);
        }
        Ok(())
    }

    fn send(&self, event: Event) -> ControlFlow<()> {
        let (sender, receiver) = sync_channel(1);
        let report = Report {
            event,
            reply: sender,
        };
        let is_sent = self.reports.send(report).is_ok();
        let reply = if is_sent { receiver.recv().ok() } else { None };
        reply.unwrap_or_else(|| {
            // The interpreter's thread ended with an exception and may not have raised the flag yet. A fit that is only
            // stopped would finish regularly and call providers once more.
            self.cancel.store(true, Ordering::Relaxed);
            ControlFlow::Break(())
        })
    }
}

/// Runs `work` on `n_threads` threads (`None`: one per core) with the interpreter released, while this thread checks for
/// signals and calls the callback. An exception of either cancels the work and is raised; a panic of the work is raised
/// as `NumericalError`.
pub(crate) fn run<T: Send>(
    py: Python<'_>,
    n_threads: Option<usize>,
    callback: Option<&Bound<'_, PyAny>>,
    work: impl FnOnce(&Reporter) -> Result<T, Error> + Send,
) -> PyResult<T> {
    run_with_checkpoints(py, n_threads, callback, None, work)
}

/// [`run`] for work that produces checkpoints; `keep` is called with each.
pub(crate) fn run_with_checkpoints<T: Send>(
    py: Python<'_>,
    n_threads: Option<usize>,
    callback: Option<&Bound<'_, PyAny>>,
    keep: Option<&Bound<'_, PyAny>>,
    work: impl FnOnce(&Reporter) -> Result<T, Error> + Send,
) -> PyResult<T> {
    let cancel = Arc::new(AtomicBool::new(false));
    let (reports, inbox) = sync_channel::<Report>(1);
    let (at_work, ended) = sync_channel::<Infallible>(1);
    let reporter = Reporter {
        cancel: Arc::clone(&cancel),
        running: Arc::default(),
        with_steps: callback.is_some(),
        with_checkpoints: keep.is_some(),
        reports,
    };
    let work = move || {
        let _at_work = at_work;
        work(&{ reporter })
    };
    let meanwhile = || {
        let outcome = serve(py, callback, keep, inbox);
        if outcome.is_err() {
            cancel.store(true, Ordering::Relaxed);
            // The interpreter is released until the work has ended.
            let _ended = py.detach(move || ended.recv());
        }
        outcome
    };
    let (result, served) = run_alongside(n_threads, work, meanwhile).map_err(to_python)?;
    served?;
    match result {
        Ok(result) => result.map_err(to_python),
        Err(payload) => Err(internal(payload.as_ref())),
    }
}

/// Processes reports and checks for signals until the worker ends.
fn serve(
    py: Python<'_>,
    callback: Option<&Bound<'_, PyAny>>,
    keep: Option<&Bound<'_, PyAny>>,
    mut inbox: Receiver<Report>,
) -> PyResult<()> {
    loop {
        py.check_signals()?;
        let message;
        (inbox, message) = py.detach(move || {
            let message = inbox.recv_timeout(SIGNAL_INTERVAL);
            (inbox, message)
        });
        let report = match message {
            Ok(report) => report,
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        };
        let stop = match (report.event, callback, keep) {
            (Event::Step(step), Some(callback), _) => call(callback, &step)?,
            (Event::BlockCheckpoint(checkpoint), _, Some(keep)) => {
                keep.call1((to_dict(py, &checkpoint)?,))?;
                false
            }
            _ => false,
        };
        let reply = if stop {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        };
        // Cannot fail, because the worker waits for the reply.
        let _ = report.reply.send(reply);
    }
}

fn call(callback: &Bound<'_, PyAny>, step: &Step) -> PyResult<bool> {
    let (action, index) = step.action.parts();
    let index = index.map_or(-1, as_index);
    let swept = match step.action {
        Action::Sweep { done, of } => Some((done, of)),
        _ => None,
    };
    let step = (
        step.iteration,
        action,
        index,
        step.gain,
        step.log_evidence,
        step.n_active,
        step.beta,
    );
    // Callbacks of fits without passes in blocks need not accept an eighth argument.
    let returned = match swept {
        Some(swept) => {
            let (a, b, c, d, e, f, g) = step;
            callback.call1((a, b, c, d, e, f, g, swept))?
        }
        None => callback.call1(step)?,
    };
    returned.is_truthy()
}
