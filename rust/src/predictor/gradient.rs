//! Gradients of predicted means and standard deviations in the features, for optimisation and sensitivity.

use crate::likelihood::link::Link;
use crate::predictor::{Block, Growth, Predictor};
use crate::{Error, Result};

impl Predictor {
    /// The gradients of mean and standard deviation of the target in the features, at one row of a regression: `n_outputs` x
    /// `n_features` numbers each, output after output.
    ///
    /// Where a gradient jumps, as that of a Laplacian kernel at its centre, it is that of one side. Infinite where that of a count or a
    /// positive number is too large, far from the data.
    ///
    /// # Errors
    /// As [`predict_std_into`](Predictor::predict_std_into).
    pub fn gradient_into(&self, x: &[f64], mean: &mut [f64], std: &mut [f64]) -> Result<()> {
        let (d, n) = (self.n_features(), self.n_outputs());
        Error::check_len("x", d, x.len())?;
        Error::check_finite("x", x)?;
        if self.is_classifier() {
            let what = "gradients are for regression; classes have probabilities".into();
            return Err(Error::Invalid { what });
        }
        Error::check_len("mean", n * d, mean.len())?;
        Error::check_len("std", n * d, std.len())?;
        let mut functions = WithGradients::default();
        for block in &self.blocks {
            block.append(x, &mut functions);
        }
        let growths: Vec<_> = (self.growths.iter())
            .map(|growth| growth.with_gradient(x))
            .collect();
        for (c, output) in self.outputs.iter().enumerate() {
            let chosen = |k: usize| output.functions.as_ref().map_or(k, |chosen| chosen[k]);
            let phi: Vec<f64> = (0..output.weights.len())
                .map(|k| functions.values[chosen(k)])
                .collect();
            let along = |coefficients: &[f64], out: &mut [f64]| {
                for (k, c) in coefficients.iter().enumerate() {
                    let gradient = &functions.gradients[chosen(k) * d..][..d];
                    out.iter_mut().zip(gradient).for_each(|(o, g)| *o += c * g);
                }
            };
            let (mut eta_slope, mut v_slope) = (vec![0.0; d], vec![0.0; d]);
            along(&output.weights, &mut eta_slope);
            let eta = output.weights.iter().zip(&phi).map(|(w, p)| w * p).sum();
            let (v, gradient) = self.covariance.with_gradient(c, &phi);
            let mut v = v.max(0.0);
            along(&gradient, &mut v_slope);
            if !self.covariance.is_none() {
                for ((rest, slopes), growth) in growths.iter().zip(&self.growths) {
                    let scale = growth.scale[c];
                    v += scale * rest;
                    v_slope
                        .iter_mut()
                        .zip(slopes)
                        .for_each(|(v, s)| *v += scale * s);
                }
            }
            let slopes = Slopes::of(self.link(), eta, v, self.noise[c]);
            let out = c * d..(c + 1) * d;
            for (j, (mean, std)) in mean[out.clone()].iter_mut().zip(&mut std[out]).enumerate() {
                [*mean, *std] = slopes.along(eta_slope[j], v_slope[j]);
            }
        }
        Ok(())
    }
}

/// Functions at a row, and their gradients, function after function.
#[derive(Default)]
struct WithGradients {
    values: Vec<f64>,
    gradients: Vec<f64>,
}

impl Block {
    fn append(&self, x: &[f64], all: &mut WithGradients) {
        let d = x.len();
        let mut push = |value: f64, gradient: &[f64]| {
            all.values.push(value);
            all.gradients.extend(gradient);
        };
        match self {
            Self::Constant => push(1.0, &vec![0.0; d]),
            Self::Columns { columns, offsets } => {
                for (&j, offset) in columns.iter().zip(offsets) {
                    let mut gradient = vec![0.0; d];
                    gradient[j] = 1.0;
                    push(x[j] - offset, &gradient);
                }
            }
            Self::Centres { kernel, points, .. } => {
                for i in 0..points.n_points() {
                    let centre: Vec<f64> = (0..d).map(|j| points.feature(j)[i]).collect();
                    let mut gradient = vec![0.0; d];
                    let value = kernel.add_gradient(x, &centre, 1.0, &mut gradient);
                    push(value, &gradient);
                }
            }
        }
    }
}

impl Growth {
    /// What landmarks leave of k(x, x), and its gradient: `k(x, x) - k_Z^T K_ZZ^-1 k_Z` has `2 d k(x, .) - 2 (K_ZZ^-1 k_Z)^T d k_Z`.
    fn with_gradient(&self, x: &[f64]) -> (f64, Vec<f64>) {
        let mut at = WithGradients::default();
        self.landmarks.append(x, &mut at);
        let mut gradient = vec![0.0; x.len()];
        // k is symmetric, so both arguments contribute alike.
        let share = 1.0 - self.kernel.rounding();
        let own = self.kernel.add_gradient(x, x, 2.0 * share, &mut gradient);
        let explained = self.factor.solve(&mut at.values);
        let rest = share * own - explained;
        if rest <= 0.0 {
            return (0.0, vec![0.0; x.len()]);
        }
        for (coefficient, slopes) in at.values.iter().zip(at.gradients.chunks_exact(x.len())) {
            let pairs = gradient.iter_mut().zip(slopes);
            pairs.for_each(|(g, s)| *g -= 2.0 * coefficient * s);
        }
        (rest, gradient)
    }
}

/// Derivatives in the linear predictor eta and its variance v: of the mean, and of the standard deviation in units of `std`.
struct Slopes {
    mean: f64,
    std: f64,
    in_eta: f64,
    in_v: f64,
}

impl Slopes {
    /// Derivatives of [`Link::mean`] and [`Link::std`].
    fn of(link: Link, eta: f64, v: f64, noise: f64) -> Self {
        let std = link.std(eta, v, noise);
        if !link.is_log() {
            return Self {
                mean: 1.0,
                std: if std > 0.0 { 0.5 / std } else { 0.0 },
                in_eta: 0.0,
                in_v: 1.0,
            };
        }
        // std^2 = a + b with a = e^(eta + v/2) of counts and b = k e^(2 eta + 2 v), which may overflow; ln std has finite slopes.
        let k = noise - (-v).exp_m1();
        let ratio = if link == Link::Log {
            (-eta - 1.5 * v).exp().max(f64::MIN_POSITIVE)
        } else {
            0.0
        };
        // b / (a + b) is k times this.
        let of_b = (k + ratio).recip();
        Self {
            mean: eta.exp(),
            std,
            in_eta: 0.5 * (1.0 + k * of_b),
            in_v: 0.25 * (1.0 - k * of_b) + of_b * (k + 0.5 * (-v).exp()),
        }
    }

    /// The gradients of mean and standard deviation, given those of eta and v; 0 where these are 0 and the factor is infinite.
    fn along(&self, eta: f64, v: f64) -> [f64; 2] {
        let times = |size: f64, slope: f64| if slope == 0.0 { 0.0 } else { size * slope };
        let of_std = times(self.in_eta, eta) + times(self.in_v, v);
        [times(self.mean, eta), times(self.std, of_std)]
    }
}
