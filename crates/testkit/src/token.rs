//! An issuer of tokens for end users: its keys, the JWKS file that publishes them, and tokens of any kind, good or bad.

use base64::Engine;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use ring::hmac;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair, RSA_PKCS1_SHA256, RsaKeyPair,
};
use serde_json::{Value, json};

/// An RSA key that only tests use; making one takes seconds.
const RSA_KEY: &str = include_str!("rsa_test_key.txt");
const RSA_MODULUS: &str = concat!(
    "0fS1Dj1REsvMyLnK5Ge0W9HgF8piZFc6L5av8PSFmk5ElII1ZtjZObXWbqiK2lmVyVvzYd1fh1FOdW07hlNGhza-5v",
    "va7NdNTiDWsqT0bKJhM5zrPPs3b2Yurp9Y_nXASRsKJxgE490NqRkVqxBaFjKiEZkrgqckydzJaCfZPmvX2YfcwOah",
    "14wQ3Y7sOYBEG1h4EwMBj3NomxbAz8Z6B7yHZhKTsI0ihGOA9RuUFD9Vak4T6MFDZiyZ3R519ulepl0SqsxyzUK2xk",
    "lKWX3t5Zudrs3CnGeHEjZNTIL6tWXCsNzkpiihBl9jPZHvs3xMfDEJ_kLh036axUntCia-GQ",
);
const RSA_EXPONENT: &str = "AQAB";

/// The algorithms that Campanile accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    Hs256,
    Rs256,
    Es256,
    EdDsa,
}

impl Algorithm {
    pub const ALL: [Algorithm; 4] = [Algorithm::Hs256, Algorithm::Rs256, Algorithm::Es256, Algorithm::EdDsa];

    fn name(self) -> &'static str {
        match self {
            Algorithm::Hs256 => "HS256",
            Algorithm::Rs256 => "RS256",
            Algorithm::Es256 => "ES256",
            Algorithm::EdDsa => "EdDSA",
        }
    }
}

/// The keys of an issuer.
pub struct Issuer {
    pub secret: String,
    rsa: RsaKeyPair,
    ecdsa: EcdsaKeyPair,
    ed25519: Ed25519KeyPair,
    random: SystemRandom,
}

impl std::fmt::Debug for Issuer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Issuer")
    }
}

impl Issuer {
    /// An issuer with new keys, except the RSA key, which is always the same.
    pub fn new() -> Self {
        let random = SystemRandom::new();
        let rsa = BASE64_STANDARD.decode(RSA_KEY.replace(['\n', ' '], "")).expect("the key is base64");
        let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let ecdsa = EcdsaKeyPair::generate_pkcs8(algorithm, &random).expect("there are random numbers");
        let ed25519 = Ed25519KeyPair::generate_pkcs8(&random).expect("there are random numbers");
        let mut secret = [0; 32];
        ring::rand::SecureRandom::fill(&random, &mut secret).expect("there are random numbers");
        Issuer {
            secret: BASE64_STANDARD.encode(secret),
            rsa: RsaKeyPair::from_der(&rsa).expect("the key is DER"),
            ecdsa: EcdsaKeyPair::from_pkcs8(algorithm, ecdsa.as_ref(), &random).expect("it was just made"),
            ed25519: Ed25519KeyPair::from_pkcs8(ed25519.as_ref()).expect("it was just made"),
            random,
        }
    }

    /// The public keys, as a JWKS document.
    pub fn jwks(&self) -> Value {
        let point = self.ecdsa.public_key().as_ref();
        let (x, y) = (encode(&point[1..33]), encode(&point[33..]));
        json!({ "keys": [
            { "kty": "RSA", "kid": "rsa", "alg": "RS256", "use": "sig", "n": RSA_MODULUS, "e": RSA_EXPONENT },
            { "kty": "EC", "kid": "ec", "crv": "P-256", "x": x, "y": y },
            { "kty": "OKP", "kid": "ed", "crv": "Ed25519", "x": encode(self.ed25519.public_key().as_ref()) },
        ] })
    }

    /// A token with these claims, signed by the issuer's key of this algorithm.
    pub fn token(&self, algorithm: Algorithm, claims: &Value) -> String {
        let kid = match algorithm {
            Algorithm::Hs256 => None,
            Algorithm::Rs256 => Some("rsa"),
            Algorithm::Es256 => Some("ec"),
            Algorithm::EdDsa => Some("ed"),
        };
        let header = json!({ "typ": "JWT", "alg": algorithm.name(), "kid": kid });
        self.with_header(algorithm, &header, claims)
    }

    /// A token with any header, signed as this algorithm does.
    pub fn with_header(&self, algorithm: Algorithm, header: &Value, claims: &Value) -> String {
        let signed = unsigned(header, claims);
        let signature = match algorithm {
            Algorithm::Hs256 => hmac_of(self.secret.as_bytes(), &signed),
            Algorithm::Rs256 => {
                let mut signature = vec![0; self.rsa.public().modulus_len()];
                let signing =
                    self.rsa.sign(&RSA_PKCS1_SHA256, &self.random, signed.as_bytes(), &mut signature);
                signing.expect("the key is good");
                signature
            }
            Algorithm::Es256 => {
                let signature = self.ecdsa.sign(&self.random, signed.as_bytes()).expect("the key is good");
                signature.as_ref().to_vec()
            }
            Algorithm::EdDsa => self.ed25519.sign(signed.as_bytes()).as_ref().to_vec(),
        };
        format!("{signed}.{}", encode(&signature))
    }
}

impl Default for Issuer {
    fn default() -> Self {
        Issuer::new()
    }
}

/// A token that says that it is not signed.
pub fn without_signature(claims: &Value) -> String {
    format!("{}.", unsigned(&json!({ "typ": "JWT", "alg": "none" }), claims))
}

/// A token signed by HMAC with the text of a public key, which everybody knows.
pub fn signed_with_public_key(claims: &Value) -> String {
    let header = json!({ "typ": "JWT", "alg": "HS256", "kid": "rsa" });
    let signed = unsigned(&header, claims);
    format!("{signed}.{}", encode(&hmac_of(RSA_MODULUS.as_bytes(), &signed)))
}

fn unsigned(header: &Value, claims: &Value) -> String {
    format!("{}.{}", encode(header.to_string().as_bytes()), encode(claims.to_string().as_bytes()))
}

fn hmac_of(secret: &[u8], text: &str) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), text.as_bytes()).as_ref().to_vec()
}

fn encode(bytes: &[u8]) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}
