//! The twin: a small server on `silicon`, built from a description, that predicts what other layouts would bring.
//!
//! [`answer`] is a pure function of its question: same question, same answer. It must not know a real or a virtual server,
//! nor any policy; all that it knows of programs is in the description.

use waykeeper_calibration::{Answer, Question};
