//! Kernels (temporary).
use std::ops::Range;
#[allow(missing_docs)]
#[derive(Debug, Clone, PartialEq)]
pub enum Kernel { Gaussian { inverse_square_widths: Vec<f64> }, Laplacian { gamma: f64 }, Polynomial { degree: u32, gamma: f64, coef0: f64 }, Linear, Sigmoid { gamma: f64, coef0: f64 }, LinearSpline, Sum(Vec<Kernel>), Product(Vec<Kernel>) }
#[allow(missing_docs)]
#[derive(Debug, Clone)]
pub struct Points { n: usize, d: usize, data: Vec<f64> }
#[allow(missing_docs)]
impl Points {
    pub fn from_rows(x: &[f64], n: usize, d: usize) -> Self { let mut data = vec![0.0; n*d]; for i in 0..n { for k in 0..d { data[k*n+i] = x[i*d+k]; } } Self { n, d, data } }
    pub fn n_points(&self) -> usize { self.n }
    pub fn n_features(&self) -> usize { self.d }
}
#[allow(missing_docs)]
impl Kernel {
    pub fn validate(&self, _d: usize) -> Result<(), String> { Ok(()) }
    pub fn eval(&self, x: &[f64], z: &[f64]) -> f64 {
        let dot = || x.iter().zip(z).map(|(a,b)| a*b).sum::<f64>();
        match self {
            Kernel::Gaussian { inverse_square_widths: w } => (-x.iter().zip(z).enumerate().map(|(i,(a,b))| w[if w.len()==1 {0} else {i}]*(a-b)*(a-b)).sum::<f64>()).exp(),
            Kernel::Laplacian { gamma } => (-gamma*x.iter().zip(z).map(|(a,b)| (a-b).abs()).sum::<f64>()).exp(),
            Kernel::Polynomial { degree, gamma, coef0 } => (gamma*dot()+coef0).powi(*degree as i32),
            Kernel::Linear => dot(),
            Kernel::Sigmoid { gamma, coef0 } => (gamma*dot()+coef0).tanh(),
            Kernel::LinearSpline => x.iter().zip(z).map(|(&a,&b)| { let m = a.min(b); 1.0 + a*b + a*b*m - 0.5*(a+b)*m*m + m*m*m/3.0 }).product(),
            Kernel::Sum(k) => k.iter().map(|k| k.eval(x,z)).sum(),
            Kernel::Product(k) => k.iter().map(|k| k.eval(x,z)).product(),
        }
    }
    pub fn column_into(&self, p: &Points, centre: &[f64], rows: Range<usize>, out: &mut [f64]) {
        let mut x = vec![0.0; p.d];
        for (o, i) in out.iter_mut().zip(rows) { for k in 0..p.d { x[k] = p.data[k*p.n+i]; } *o = self.eval(&x, centre); }
    }
}
