//! One file per family of functions; the registry.

use super::build::Expr;

/// A call of a scalar function.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    pub name: &'static str,
    pub args: Vec<Expr>,
}

/// Names of all scalar functions, upper case.
pub fn list() -> impl Iterator<Item = &'static str> {
    std::iter::empty()
}
