//! Hashes of bytes, or of a string's UTF-8 bytes, in lower-case hexadecimal digits; and `HASH_CODE`, Java's hash.

use std::fmt::Write as _;

use arrow_array::types::Int32Type;
use md5::Md5;
use sha1::Sha1;
use sha2::{Digest, Sha224, Sha256, Sha384, Sha512};

use super::{Function, Resolved, call, exactly, int, octets, string, text_or_bytes};
use crate::expr::build::Expr;
use crate::expr::types::DataType;
use crate::expr::vector::{Operand, make_numbers, make_strings};

pub const FUNCTIONS: &[Function] = &[
    Function { name: "MD5", parameters: "STRING or BYTES", resolve: |args| hash("MD5", args, digits::<Md5>) },
    Function { name: "SHA1", parameters: "STRING or BYTES", resolve: |args| hash("SHA1", args, digits::<Sha1>) },
    Function { name: "SHA224", parameters: "STRING or BYTES", resolve: |args| hash("SHA224", args, digits::<Sha224>) },
    Function { name: "SHA256", parameters: "STRING or BYTES", resolve: |args| hash("SHA256", args, digits::<Sha256>) },
    Function { name: "SHA384", parameters: "STRING or BYTES", resolve: |args| hash("SHA384", args, digits::<Sha384>) },
    Function { name: "SHA512", parameters: "STRING or BYTES", resolve: |args| hash("SHA512", args, digits::<Sha512>) },
    Function { name: "SHA2", parameters: "STRING or BYTES, INT", resolve: sha2 },
    Function { name: "HASH_CODE", parameters: "STRING", resolve: hash_code },
];

fn digits<D: Digest>(bytes: &[u8], out: &mut String) {
    for byte in D::digest(bytes) {
        // Writing to a String cannot fail.
        let _ = write!(out, "{byte:02x}");
    }
}

fn hash(name: &'static str, args: Vec<Expr>, digits: fn(&[u8], &mut String)) -> Resolved {
    let [text] = exactly(args)?;
    let text = text_or_bytes(text)?;
    let data_type = text.data_type.clone();
    Ok(call(name, vec![text], DataType::String, move |args, scope| {
        let text = args.first().map(|text| octets(text, &data_type));
        make_strings(scope, |row, out| {
            let Some(text) = text.as_ref().and_then(|text| text(row)) else { return Ok(false) };
            digits(text, out);
            Ok(true)
        })
    }))
}

/// The length must be one that there is, else the row fails as the job does in Flink.
fn sha2(args: Vec<Expr>) -> Resolved {
    let [text, bits] = exactly(args)?;
    let text = text_or_bytes(text)?;
    let data_type = text.data_type.clone();
    Ok(super::fallible_call("SHA2", vec![text, int(bits)?], DataType::String, move |args, scope| {
        let text = args.first().map(|text| octets(text, &data_type));
        let bits = args.get(1).map(Operand::numbers::<Int32Type>);
        make_strings(scope, |row, out| {
            let (Some(text), Some(bits)) = (text.as_ref().and_then(|text| text(row)), bits.and_then(|b| b.get(row)))
            else {
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

/// The absolute value of Java's `String.hashCode`; that of the least INT is itself.
fn hash_code(args: Vec<Expr>) -> Resolved {
    let [text] = exactly(args)?;
    Ok(call("HASH_CODE", vec![string(text)?], DataType::Int, |args, scope| {
        let text = args.first().map(Operand::strings);
        make_numbers::<Int32Type>(scope, &DataType::Int.arrow(), |row| {
            let hash = |text: &str| {
                text.encode_utf16().fold(0_i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)))
            };
            Ok(text.and_then(|text| text.get(row)).map(|text| hash(text).wrapping_abs()))
        })
    }))
}
