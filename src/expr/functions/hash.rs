//! Hashes of a string's UTF-8 bytes, in lower-case hexadecimal digits.

use std::fmt::Write as _;

use arrow_array::types::Int32Type;
use md5::Md5;
use sha1::Sha1;
use sha2::{Digest, Sha224, Sha256, Sha384, Sha512};

use super::{Function, Resolved, call, exactly, int, string};
use crate::expr::build::Expr;
use crate::expr::types::DataType;
use crate::expr::vector::{Operand, make_strings};

pub const FUNCTIONS: &[Function] = &[
    Function { name: "MD5", parameters: "STRING", resolve: |args| hash("MD5", args, digits::<Md5>) },
    Function { name: "SHA1", parameters: "STRING", resolve: |args| hash("SHA1", args, digits::<Sha1>) },
    Function { name: "SHA224", parameters: "STRING", resolve: |args| hash("SHA224", args, digits::<Sha224>) },
    Function { name: "SHA256", parameters: "STRING", resolve: |args| hash("SHA256", args, digits::<Sha256>) },
    Function { name: "SHA384", parameters: "STRING", resolve: |args| hash("SHA384", args, digits::<Sha384>) },
    Function { name: "SHA512", parameters: "STRING", resolve: |args| hash("SHA512", args, digits::<Sha512>) },
    Function { name: "SHA2", parameters: "STRING, INT", resolve: sha2 },
];

fn digits<D: Digest>(text: &str, out: &mut String) {
    for byte in D::digest(text.as_bytes()) {
        // Writing to a String cannot fail.
        let _ = write!(out, "{byte:02x}");
    }
}

fn hash(name: &'static str, args: Vec<Expr>, digits: fn(&str, &mut String)) -> Resolved {
    let [text] = exactly(args)?;
    Ok(call(name, vec![string(text)?], DataType::String, move |args, scope| {
        let text = args.first().map(Operand::strings);
        make_strings(scope, |row, out| {
            let Some(text) = text.and_then(|text| text.get(row)) else { return Ok(false) };
            digits(text, out);
            Ok(true)
        })
    }))
}

/// The length must be one that there is, else the row fails as the job does in Flink.
fn sha2(args: Vec<Expr>) -> Resolved {
    let [text, bits] = exactly(args)?;
    Ok(super::fallible_call("SHA2", vec![string(text)?, int(bits)?], DataType::String, |args, scope| {
        let text = args.first().map(Operand::strings);
        let bits = args.get(1).map(Operand::numbers::<Int32Type>);
        make_strings(scope, |row, out| {
            let (Some(text), Some(bits)) = (text.and_then(|t| t.get(row)), bits.and_then(|b| b.get(row))) else {
                return Ok(false);
            };
            match bits {
                224 => digits::<Sha224>(text, out),
                256 => digits::<Sha256>(text, out),
                384 => digits::<Sha384>(text, out),
                512 => digits::<Sha512>(text, out),
                _ => return Err(format!("SHA2 has 224, 256, 384 or 512 bits, not {bits}")),
            }
            Ok(true)
        })
    }))
}
