//! FCM, and the endpoint for its access tokens.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::fcm::{self, FcmRequest, KEY_FILE, PROJECT};
use super::http::{Replies, Reply, Server};

pub fn told(asked: &FcmRequest) -> Reply {
    Reply::json(200, &json!({"name": format!("projects/{PROJECT}/messages/{}", asked.token())}).to_string())
}

pub fn error(status: u16, name: &str, code: &str) -> Reply {
    let detail = json!({"@type": "type.googleapis.com/google.firebase.fcm.v1.FcmError", "errorCode": code});
    let error = json!({"code": status, "message": "no", "status": name, "details": [detail]});
    Reply::json(status, &json!({ "error": error }).to_string())
}

fn grant(_: &Value) -> Reply {
    Reply::json(200, r#"{"access_token": "ya29.one", "expires_in": 3600, "token_type": "Bearer"}"#)
}

#[derive(Debug)]
pub struct Google {
    fcm: Server<FcmRequest>,
    pub tokens: Server<Value>,
    folder: tempfile::TempDir,
}

impl Google {
    pub async fn start(reply: impl FnMut(&FcmRequest) -> Reply + Send + 'static) -> Self {
        let fcm = Server::start_with(fcm::check, Replies::ByRequest(Box::new(reply))).await;
        let tokens = Server::start_with(fcm::check_grant, grant as fn(&Value) -> Reply).await;
        let folder = tempfile::tempdir().unwrap();
        let mut key: Value = serde_json::from_str(KEY_FILE).unwrap();
        key["token_uri"] = json!(format!("http://{}/token", tokens.address));
        std::fs::write(folder.path().join("key.json"), key.to_string()).unwrap();
        Google { fcm, tokens, folder }
    }

    pub fn variables(&self) -> [(&'static str, String); 2] {
        [
            (
                "CAMPANILE_CHANNELS__PUSH__KEY_FILE",
                self.folder.path().join("key.json").to_str().unwrap().to_owned(),
            ),
            ("CAMPANILE_CHANNELS__PUSH__URL", format!("http://{}", self.fcm.address)),
        ]
    }

    /// Every requested message.
    pub fn messages(&self) -> Vec<Value> {
        self.fcm.requests().into_iter().map(|asked| asked.message).collect()
    }

    /// The number of requests per device.
    pub fn asked(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for message in self.messages() {
            *counts.entry(message["token"].as_str().unwrap().to_owned()).or_default() += 1;
        }
        counts
    }
}
