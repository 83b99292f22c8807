//! Runs a fit on another thread while this one checks for signals and calls the callback.

use std::convert::Infallible;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use sparsebayes::internal::BlockCheckpoint;
use sparsebayes::internal::run_alongside;
use sparsebayes::{Action, Error, Step};

use crate::arrays::as_index;
use crate::blocks::to_dict;
use crate::errors::{internal, invalid, to_python};

/// Interval between two checks for signals, and so the delay of Ctrl-C.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(50);

/// The content of a report.
enum Event {
    Step(Step),
    BlockCheckpoint(Box<BlockCheckpoint>),
}

/// A message from the worker, with a channel for the reply if it waits for one.
struct Report {
    event: Event,
    reply: Option<SyncSender<ControlFlow<()>>>,
}

/// Which steps are passed to the callback.
enum Reporting {
    None,
    /// Every step; the worker waits for the reply.
    Every,
    /// At most one step per interval, without waiting: for callbacks that only show progress.
    Periodic {
        interval: Duration,
        last: Mutex<Instant>,
    },
}

impl Reporting {
    /// A callback with an attribute `seconds` is called at most once in that time.
    fn of(callback: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let Some(callback) = callback else {
            return Ok(Self::None);
        };
        Ok(match callback.getattr_opt("seconds")? {
            Some(seconds) => Self::Periodic {
                interval: Duration::try_from_secs_f64(seconds.extract()?)
                    .map_err(|error| invalid(error.to_string()))?,
                last: Mutex::new(Instant::now()),
            },
            None => Self::Every,
        })
    }
}

/// The worker's end: the cancellation flag, and methods that report steps and checkpoints.
pub(crate) struct Reporter {
    pub(crate) cancel: Arc<AtomicBool>,
    /// Alive as long as the fit.
    pub(crate) running: Arc<()>,
    reporting: Reporting,
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
        match &self.reporting {
            Reporting::None => ControlFlow::Continue(()),
            Reporting::Every => self.send(Event::Step(*step)),
            Reporting::Periodic { interval, last } => {
                let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
                if last.elapsed() >= *interval {
                    *last = Instant::now();
                    // Skipped if the callback is still busy with an earlier step.
                    let event = Event::Step(*step);
                    let _ = self.reports.try_send(Report { event, reply: None });
                }
                ControlFlow::Continue(())
            }
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
            reply: Some(sender),
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
    let (reporting, with_checkpoints) = (Reporting::of(callback)?, keep.is_some());
    let reporter = Reporter {
        cancel: Arc::clone(&cancel),
        running: Arc::default(),
        reporting,
        with_checkpoints,
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
        if let Some(sender) = report.reply {
            // Cannot fail, because the worker waits for the reply.
            let _ = sender.send(reply);
        }
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
