//! Tokens of end users: which keys may sign them, and what they must claim. `jsonwebtoken` verifies signatures and
//! times.

use std::fmt;

use campanile_domain::access::end_user::{Claims, EndUser};
use campanile_domain::people::user_type::UserTypes;
use campanile_domain::time::Timestamp;
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, decode_header};

use super::jwks::JwksFile;

/// A longer token is refused unread. Tokens of identity providers have 1 to 2 KB.
const MAX_TOKEN_BYTES: usize = 8 * 1024;
/// The tolerated difference between our clock and that of whoever issues tokens.
const CLOCK_SKEW_SECONDS: u64 = 60;

/// What verifies the tokens of end users.
pub struct TokenVerifier {
    /// For HS256, and for no other algorithm.
    pub secret: Option<DecodingKey>,
    /// For RS256, ES256 and `EdDSA`, each key for one of them.
    pub jwks: Option<JwksFile>,
    pub audience: Option<String>,
    pub issuer: Option<String>,
}

impl fmt::Debug for TokenVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenVerifier")
            .field("secret", &self.secret.is_some())
            .field("jwks", &self.jwks)
            .field("audience", &self.audience)
            .field("issuer", &self.issuer)
            .finish()
    }
}

impl TokenVerifier {
    /// The user whom a token was issued for. The error tells what is wrong with the token; it quotes nothing of it but
    /// the claim's name.
    pub fn verify(&self, token: &str, user_types: &UserTypes, now: Timestamp) -> Result<EndUser, String> {
        if token.len() > MAX_TOKEN_BYTES {
            return Err(format!("the token has more than {MAX_TOKEN_BYTES} bytes"));
        }
        let header = decode_header(token).map_err(|error| explained(error.kind()))?;
        if header.crit.is_some() {
            return Err("the token has the header `crit`, which is not supported".to_owned());
        }
        let algorithm = header.alg;
        let key = match algorithm {
            Algorithm::HS256 => self.secret.clone(),
            Algorithm::RS256 | Algorithm::ES256 | Algorithm::EdDSA => {
                self.jwks.as_ref().and_then(|jwks| jwks.key(algorithm, header.kid.as_deref()))
            }
            _ => None,
        };
        let key =
            key.ok_or_else(|| format!("no configured key may sign with {algorithm:?} and this `kid`"))?;
        let verified = decode::<Claims>(token, &key, &self.validation(algorithm))
            .map_err(|error| explained(error.kind()))?;
        if verified.claims.is_own() {
            return Err("a ticket is not a token; it opens sockets and streams only".to_owned());
        }
        EndUser::of(verified.claims, user_types, now)
            .map_err(|error| format!("{}: {}", error.field, error.detail))
    }

    fn validation(&self, algorithm: Algorithm) -> Validation {
        let mut validation = Validation::new(algorithm);
        validation.leeway = CLOCK_SKEW_SECONDS;
        validation.validate_nbf = true;
        let mut required = vec!["exp"];
        match &self.audience {
            Some(audience) => {
                validation.set_audience(&[audience]);
                required.push("aud");
            }
            None => validation.validate_aud = false,
        }
        if let Some(issuer) = &self.issuer {
            validation.set_issuer(&[issuer]);
            required.push("iss");
        }
        validation.set_required_spec_claims(&required);
        validation
    }
}

fn explained(error: &ErrorKind) -> String {
    match error {
        ErrorKind::ExpiredSignature => "the token has expired".to_owned(),
        ErrorKind::ImmatureSignature => "the token is not valid yet (`nbf`)".to_owned(),
        ErrorKind::InvalidSignature => "the signature is wrong".to_owned(),
        ErrorKind::InvalidAudience => "the token is for another audience (`aud`)".to_owned(),
        ErrorKind::InvalidIssuer => "the token is from another issuer (`iss`)".to_owned(),
        ErrorKind::MissingRequiredClaim(claim) => {
            format!("the claim `{claim}` is missing or has the wrong type")
        }
        ErrorKind::InvalidClaimFormat(claim) => format!("the claim `{claim}` has the wrong type"),
        ErrorKind::Json(error) if error.is_data() => {
            let error = error.to_string();
            format!("a claim is missing or wrong: {}", error.split(" at line ").next().unwrap_or_default())
        }
        _ => "it is not a valid JWT of a supported algorithm".to_owned(),
    }
}
