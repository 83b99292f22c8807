//! The Newton basis of a kernel at all rows and centres, with as many landmarks as these need.

use std::ops::Range;

use crate::Points;
use crate::data::column_table::Table;
use crate::data::design::Family;
use crate::data::low_rank::features::MAX_OTHERS;
use crate::data::low_rank::pivoted_cholesky::{PivotedCholesky, PointBasis};
use crate::data::low_rank::policy::LowRankPolicy;
use crate::linalg::aligned_columns::AlignedColumns;
use crate::parallel::map_pieces;

/// Newton functions u and power function P at some points.
pub(crate) struct BasisTable {
    pub(crate) values: Table,
    pub(crate) powers: Vec<f64>,
}

impl BasisTable {
    /// An empty table with memory for the Newton functions, and for functions that are features of their own.
    fn with_room(n_points: usize, newton: &PivotedCholesky) -> Table {
        Table::with_room(n_points, newton.len() + MAX_OTHERS)
    }

    /// From values computed when the landmarks were chosen.
    fn from_basis(newton: &PivotedCholesky, points: &Points, basis: &PointBasis) -> Self {
        let mut values = Self::with_room(points.n_points(), newton);
        (0..newton.len()).for_each(|k| values.push_pieces(basis.function(k)));
        let powers = newton.powers(points, &basis.residuals());
        Self { values, powers }
    }

    /// Evaluates the Newton functions at all points.
    fn evaluate(newton: &PivotedCholesky, points: &Points) -> Self {
        /// Points that one thread handles at a time.
        const STRIP: usize = 256;
        let parts = map_pieces(points.n_points(), STRIP, |rows| {
            let (mut out, height) = (Vec::new(), rows.len());
            let powers = newton.at(points, rows, height, &mut out);
            (out, powers)
        });
        let mut values = Self::with_room(points.n_points(), newton);
        for k in 0..newton.len() {
            let pieces = parts.iter();
            values.push_pieces(
                pieces.map(|(part, powers)| &part[k * powers.len()..][..powers.len()]),
            );
        }
        let powers = parts.into_iter().flat_map(|(_, powers)| powers).collect();
        Self { values, powers }
    }
}

/// The Newton basis of a family at all rows, and at the centres if these are not the rows.
pub(crate) struct FamilyValues {
    pub(crate) newton: PivotedCholesky,
    pub(crate) rows: BasisTable,
    pub(crate) centres: Option<BasisTable>,
}

impl FamilyValues {
    /// Adds landmarks where the error at some point exceeds the tolerance; `at_sample` has the Newton functions at the sample from which
    /// the landmarks were chosen. `None` if too many landmarks would be needed.
    pub(crate) fn of(
        family: &Family<'_>,
        mut newton: PivotedCholesky,
        at_sample: PointBasis,
        policy: LowRankPolicy,
    ) -> Option<Self> {
        const MAX_ROUNDS: usize = 4;
        let (n, d) = (family.points.n_points(), family.points.n_features());
        let about_rows = family.is_about_its_rows();
        let centres = (!about_rows).then(|| Points::from_rows(family.centres, family.len(), d));
        // The sample may be all rows.
        let mut at_rows = (about_rows && at_sample.n_points() == n).then_some(at_sample);
        for _ in 0..MAX_ROUNDS {
            let this = Self {
                rows: match at_rows.take() {
                    Some(basis) => BasisTable::from_basis(&newton, family.points, &basis),
                    None => BasisTable::evaluate(&newton, family.points),
                },
                centres: centres
                    .as_ref()
                    .map(|centres| BasisTable::evaluate(&newton, centres)),
                newton,
            };
            if policy.is_coarse() {
                return Some(this);
            }
            let mut far = FarPoints::default();
            far.add(&this.newton, family.points, &this.rows, policy.tol);
            if let (Some(points), Some(table)) = (&centres, &this.centres) {
                far.add(&this.newton, points, table, policy.tol);
            }
            if far.squares.is_empty() {
                return Some(this);
            }
            newton = this.newton;
            let functions = |points: Range<usize>| {
                let function = |k| {
                    let mut function = AlignedColumns::zeros(points.len());
                    let values = far.values.iter().skip(points.start * newton.len() + k);
                    let values = values.step_by(newton.len());
                    function.iter_mut().zip(values).for_each(|(f, v)| *f = *v);
                    function
                };
                (0..newton.len()).map(function).collect()
            };
            let basis = PointBasis::new(&far.squares, functions);
            newton.grow(&far.points, basis, policy.tol, policy.max_features)?;
        }
        None
    }
}

/// Points where P^2 exceeds the tolerance.
#[derive(Default)]
struct FarPoints {
    /// Row by row.
    points: Vec<f64>,
    /// Newton functions, point after point.
    values: Vec<f64>,
    /// P^2.
    squares: Vec<f64>,
}

impl FarPoints {
    fn add(&mut self, newton: &PivotedCholesky, points: &Points, table: &BasisTable, tol: f64) {
        for (i, power) in table.powers.iter().enumerate() {
            // Landmarks cannot reduce the part of P^2 that allows for rounding.
            let square = power * power - newton.rounding() * newton.largest();
            if square > tol * newton.largest() {
                let features = 0..points.n_features();
                self.points.extend(features.map(|f| points.feature(f)[i]));
                let functions = 0..newton.len();
                self.values
                    .extend(functions.map(|k| table.values.column(k)[i]));
                self.squares.push(square);
            }
        }
    }
}
