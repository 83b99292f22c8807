//! Constants of the searches and loops of this folder. Evidence gains are in nats, alphas in units of unit-norm columns and
//! targets of unit variance. Where a value was measured, `docs/notebook/searches.md` or `greedy-fits.md` has the numbers.

/// How far a loop continues before it returns.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Effort {
    /// Functions that gain less than this many nats are not added.
    pub(crate) gain: f64,
    /// Re-estimations of a single alpha that gain less than this many nats are left to the joint steps.
    pub(crate) step: f64,
    /// Joint steps continue until every |change in ln alpha| and |change in ln beta| is below this; infinite: no joint steps.
    pub(crate) tol: f64,
    /// Whether estimated noise precisions move.
    pub(crate) moves_noise: bool,
}

/// Constants of the searches and loops.
pub(crate) struct Tuning;

impl Tuning {
    // The noise and the precisions.

    /// Initial noise variance as a fraction of the variance of the targets: Tipping & Faul (2003), section 4, step 1.
    /// Sensitive where kernels are too wide: optima tens of nats apart, see "Kernels that are too wide" in the notebook.
    pub(crate) const INITIAL_NOISE: f64 = 0.1;
    /// Least estimate of the noise variance as a fraction of the variance of the targets. Noise-free data have no optimum
    /// above zero; the fit then ends at this floor with its own status.
    pub(crate) const NOISE_FLOOR: f64 = 1e-6;
    /// The alpha of every function at the start from the full basis.
    pub(crate) const INITIAL_ALPHA: f64 = 1.0;
    /// Largest factor by which one update of the full basis multiplies an alpha: MacKay's would send some to infinity at once.
    pub(crate) const MAX_ALPHA_GROWTH: f64 = 1e3;
    /// Full basis: a function whose alpha exceeds this multiple of its s may be pruned.
    pub(crate) const PRUNE_RATIO: f64 = 100.0;

    /// Updates of the full basis end once no ln alpha and no ln beta changes by more; the sequential scheme continues.
    pub(crate) const UPDATE_TOL: f64 = 1e-3;
    /// Under an informative prior functions are pruned only once no ln alpha changes by more in an update.
    pub(crate) const PRUNE_TOL: f64 = 0.1;
    /// Largest change of a log hyperparameter in a joint step. With 1, 6, 20 or no limit fits need more attempts at steps.
    pub(crate) const MAX_NEWTON_CHANGE: f64 = 3.0;
    /// Least change of ln beta for a step on the noise alone; joint steps make smaller changes.
    pub(crate) const MIN_NOISE_CHANGE: f64 = 0.1;

    // The greedy loop.

    /// Least gain in nats at which an inactive function counts as a candidate: the final accuracy of the evidence.
    pub(crate) const MIN_GAIN: f64 = 1e-7;
    /// Gains that differ by less than this fraction are ties, and the lowest index wins: round-off must not choose the model.
    pub(crate) const TIE: f64 = 1e-7;
    /// Least gain in nats of a function that was kept out by which a fit counts as stalled.
    pub(crate) const MIN_REPORTED_GAIN: f64 = 1e-6;
    /// The noise is fixed at its initial value until no function gains a nat. Free from the start, 85 nats were lost on the
    /// 1-D sinc with linear splines; fixed until nothing gains at all takes twice the steps for the same evidence.
    pub(crate) const HELD_NOISE_EFFORT: Effort = Effort {
        gain: 1.0,
        step: 0.3,
        tol: f64::INFINITY,
        moves_noise: false,
    };
    /// With free noise, for a first model: no joint steps.
    pub(crate) const COARSE_EFFORT: Effort = Effort {
        gain: 0.1,
        step: Self::COARSE_STEP,
        tol: f64::INFINITY,
        moves_noise: true,
    };
    /// For a trial of a search that is close to the best model or above it.
    pub(crate) const TRIAL_EFFORT: Effort = Effort {
        gain: 0.01,
        step: Self::FINE_STEP,
        tol: f64::INFINITY,
        moves_noise: true,
    };
    /// Least gain in nats of a re-estimation of a single alpha in a first model; joint steps replace smaller ones.
    pub(crate) const COARSE_STEP: f64 = 0.05;
    /// Least gain in nats of such a re-estimation where single steps have to bring alphas to deletion.
    pub(crate) const FINE_STEP: f64 = 0.003;
    /// Tolerance on ln alpha of the active set between two passes over the dictionary. At 0.1 fits need more passes.
    pub(crate) const LOOSE_TOL: f64 = 1e-2;
    /// Largest number of functions added together after refinement, and the least gain of each as a fraction of the first
    /// one's. With 8 and 0.1 fits of hundreds of functions take 5 % longer.
    pub(crate) const MAX_JOINT_ADDITIONS: usize = 32;
    pub(crate) const JOINT_GAIN_RATIO: f64 = 0.03;
    /// Tolerance on ln alpha of the refinement before such additions. At 0.01 fits are slower.
    pub(crate) const ADDITION_TOL: f64 = 0.1;
    /// Squared cosine from which two columns are duplicates. At 0.99 a fit of 20,000 rows takes 50 % longer; without the rule
    /// equal columns are both added.
    pub(crate) const DUPLICATE_COS2: f64 = 0.999_999;
    /// Additions of a function that may gain less than [`Self::MIN_REENTRY_GAIN`].
    pub(crate) const MAX_FREE_ENTRIES: u8 = 8;
    /// Least gain in nats of a function that has been added [`Self::MAX_FREE_ENTRIES`] times.
    pub(crate) const MIN_REENTRY_GAIN: f64 = 1e-3;
    /// Additions of a function after which it stays out. Both bounds end cycles that round-off causes; few fits reach them.
    pub(crate) const MAX_ENTRIES: u8 = 40;
    /// Least part of a column (squared, relative) that is orthogonal to the active columns; below it S is round-off.
    pub(crate) const MIN_ORTHOGONAL_PART: f64 = 1e-11;
    /// Joint steps in a row that raise the objective by no more than round-off after which refinement has stalled.
    pub(crate) const MAX_PLATEAU: usize = 50;

    // Passes over the dictionary.

    /// Up to this many candidates the first working set is the whole dictionary. Samples of 128 to 256 of 501 candidates ended
    /// 0.1 to 0.6 nats lower on average.
    pub(crate) const MAX_WHOLE_DICTIONARY: usize = 512;
    /// This limit for mRVM1, which fits the same dictionary once for each M-step.
    pub(crate) const MAX_WHOLE_MRVM_DICTIONARY: usize = 2048;
    /// Candidates in the first working set of a larger dictionary, and the most with a positive gain in later ones.
    pub(crate) const SAMPLE_SIZE: usize = 256;
    /// This limit where the Gram matrix changes with each mode of a Laplace approximation.
    pub(crate) const LAPLACE_SAMPLE_SIZE: usize = 128;
    /// Candidates in a working set that gain nothing yet but are closest to it: they may gain once the others have moved.
    pub(crate) const NEAR_CANDIDATES: usize = 192;
    /// Least q^2 / s of such a candidate; above 1 it would gain.
    pub(crate) const MIN_NEAR_RATIO: f64 = 0.3;
    /// Candidates among which a block to add is chosen.
    pub(crate) const SHORTLIST_SIZE: usize = 32;
    /// Functions added between two passes over the dictionary where there is no working set.
    pub(crate) const MAX_BLOCK_ADDITIONS: usize = 8;
    /// Least gain of a function of such a block, as a fraction of the first one's.
    pub(crate) const BLOCK_GAIN_RATIO: f64 = 0.1;

    /// The first model is complete when no candidate gains more than this many nats. A search on an incomplete one ends several
    /// nats lower.
    pub(crate) const MAX_INITIAL_GAIN: f64 = 2.0;
    /// Rounds in a row without a higher objective after which a fit ends as stalled.
    pub(crate) const MAX_IDLE_ROUNDS: usize = 4;

    // Starts from approximate data: see `docs/notebook/low-rank.md`.

    /// Rows per row of a subsample, and its least size.
    pub(crate) const SUBSAMPLE_RATIO: usize = 16;
    pub(crate) const MIN_SUBSAMPLE_ROWS: usize = 1 << 14;
    /// A fit on a subsample ends when no candidate gains more than this many nats, or after so many working sets.
    pub(crate) const MAX_SUBSAMPLE_GAIN: f64 = 0.3;
    pub(crate) const MAX_SUBSAMPLE_ROUNDS: usize = 10;
    /// Least `max_iter` for a start from low-rank features, whose steps are not counted.
    pub(crate) const MIN_LOW_RANK_STEPS: usize = 1000;
    /// Largest noise precision, for targets of unit variance, of a start from low-rank features: their error has to be below the
    /// noise. A fit with a noise of 1/2000 of the variance ended 26 nats lower.
    pub(crate) const MAX_LOW_RANK_BETA: f64 = 300.0;
    /// Candidates by which the first model in features is tested, and by how many nats the gain of each on the rows may exceed
    /// its gain in features. Without the test one problem of five inputs ended 700 nats lower.
    pub(crate) const LOW_RANK_TEST_SIZE: usize = 64;
    pub(crate) const MAX_LOW_RANK_ERROR: f64 = 0.4;
    /// Largest gain in nats of a candidate on the rows beside the final model in features.
    pub(crate) const MAX_LOW_RANK_GAIN: f64 = 1.0;

    // Searches.

    /// Functions that a trial removes together. On 36 sinc problems 4 raised the evidence by 0.9 nats on average and 3.2 in
    /// the worst case; 1, 2, 3, 6 and 8 did less.
    pub(crate) const NEIGHBOURHOOD_SIZE: usize = 4;
    /// Substitutes of each active function in a working set. On 28 problems of the 2-D sinc 12 ended about a nat above 8 and 6.
    pub(crate) const SUBSTITUTES: usize = 12;
    /// Searches, each on a working set made for the model that the one before it found.
    pub(crate) const MAX_SEARCHES: usize = 2;
    /// Trials from the same model that are compared; the best one replaces it.
    pub(crate) const TRIAL_BATCH: usize = 4;
    /// Failed trials in a row that end a search. No loss at N = 500 and 1000, 0.26 nats on average at 2000.
    pub(crate) const MAX_FAILED_TRIALS: usize = 16;
    /// A trial this many nats below the best model is not refined. At 1.5 fits are 5 % faster and lost 0.1 nats once.
    pub(crate) const MAX_TRIAL_DEFICIT: f64 = 3.0;
    /// Steps of a trial, more than any converging one makes, after which it is discarded.
    pub(crate) const MAX_TRIAL_STEPS: usize = 20_000;
    /// Least gain of a search in nats.
    pub(crate) const MIN_SEARCH_GAIN: f64 = 0.01;
    /// Least gain of an exchange of functions in nats.
    pub(crate) const MIN_EXCHANGE_GAIN: f64 = 1e-3;

    /// Least gain in nats of a function that has been added `entries` times, so that round-off cannot add and delete it for ever.
    pub(crate) fn min_gain(entries: u8) -> f64 {
        match entries {
            0..Self::MAX_FREE_ENTRIES => Self::MIN_GAIN,
            Self::MAX_FREE_ENTRIES..Self::MAX_ENTRIES => Self::MIN_REENTRY_GAIN,
            _ => f64::INFINITY,
        }
    }

    /// Searches of a fit of `n` rows. At N = 1000 a second one took a fifth of the fit for 0.7 nats on average; from
    /// N = 2000 on it is worth one to two nats.
    pub(crate) fn searches(n: f64) -> usize {
        const MIN_ROWS: f64 = 1280.0;
        if n < MIN_ROWS { 1 } else { Self::MAX_SEARCHES }
    }

    /// Trials of one search of a fit of `n` rows: a fraction of the cost of a pass over the dictionary. Fits without this
    /// limit take 5 to 12 times as long.
    pub(crate) fn trials(n: f64) -> usize {
        const PER_ROW: f64 = 0.04;
        // Between 30 and 48, so the conversion is exact.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let trials = (PER_ROW * n).clamp(30.0, 48.0) as usize;
        trials
    }
}
