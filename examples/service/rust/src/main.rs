//! Predictions with error bars over HTTP: axum, and a model that is loaded at start-up and on SIGHUP.
//!
//! `SPARSEBAYES_MODEL=diabetes.safetensors cargo run --release` answers on 127.0.0.1:8000, or on what `ADDRESS` says. The
//! requests and answers are those of the Python service beside it.

mod served;

use std::env;
use std::error::Error;
use std::sync::{Arc, PoisonError, RwLock};

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::serve::ListenerExt;
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use served::{Problem, Served};

/// Of a request.
const MOST_BYTES: usize = 8 << 20;

/// An answer that is none.
struct Refusal(StatusCode, Problem);

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let Self(status, problem) = self;
        let error = json!({"where": problem.place, "what": problem.what});
        (status, Json(json!({"errors": [error]}))).into_response()
    }
}

/// The model, which a newer one may replace. Requests that have begun finish with the model they began with.
#[derive(Clone)]
struct Current(Arc<RwLock<Arc<Served>>>);

impl Current {
    fn new(served: Served) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(served))))
    }

    fn get(&self) -> Arc<Served> {
        self.0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Reads the file again; if it is not a model, the old one stays.
    fn reload(&self, path: &str) {
        match Served::load(path) {
            Ok(served) => {
                let mut current = self.0.write().unwrap_or_else(PoisonError::into_inner);
                *current = Arc::new(served);
            }
            Err(error) => eprintln!("the model stays as it was: {error}"),
        }
    }
}

async fn predict(
    State(current): State<Current>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Json<Value>, Refusal> {
    let body = body.map_err(|error| Refusal(error.status(), Problem::of("", error.body_text())))?;
    // Here and not on a thread of its own: a prediction takes less time than to get there.
    let answer = current.get().answer(&body);
    answer
        .map(Json)
        .map_err(|problem| Refusal(StatusCode::UNPROCESSABLE_ENTITY, problem))
}

async fn info(State(current): State<Current>) -> Json<Value> {
    Json(current.get().info())
}

async fn health(State(current): State<Current>) -> Json<Value> {
    Json(json!({"status": "ok", "model": current.get().version()}))
}

fn service(current: Current) -> Router {
    Router::new()
        .route("/predict", post(predict))
        .route("/info", get(info))
        .route("/health", get(health))
        .layer(DefaultBodyLimit::max(MOST_BYTES))
        .with_state(current)
}

/// Loads the model again at each SIGHUP.
#[cfg(unix)]
fn reload_on_signal(current: Current, path: String) -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};

    let mut signals = signal(SignalKind::hangup())?;
    tokio::spawn(async move {
        while signals.recv().await.is_some() {
            // On a thread of its own, as requests must not wait for the disk.
            let (current, path) = (current.clone(), path.clone());
            let _ = tokio::task::spawn_blocking(move || current.reload(&path)).await;
        }
    });
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let path = env::var("SPARSEBAYES_MODEL")
        .map_err(|_| "set SPARSEBAYES_MODEL to the path of a model file")?;
    let address = env::var("ADDRESS").unwrap_or_else(|_| "127.0.0.1:8000".into());
    let current = Current::new(Served::load(&path)?);
    #[cfg(unix)]
    reload_on_signal(current.clone(), path)?;
    // Answers are small: waiting to fill a packet would be most of the time.
    let listener = TcpListener::bind(address).await?.tap_io(|stream| {
        let _ = stream.set_nodelay(true);
    });
    let stop = async {
        let _ = tokio::signal::ctrl_c().await;
    };
    axum::serve(listener, service(current))
        .with_graceful_shutdown(stop)
        .await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use axum::body::{Body, to_bytes};
    use axum::http::Request;
    use sparsebayes::Predictor;
    use sparsebayes::predictor::{Parts, Table};
    use tower::ServiceExt;

    use super::*;

    /// y = 1 + 2 a - b, noise of variance 0.25.
    fn model() -> Predictor {
        let header = r#"{"format_version": 1, "library_version": "0.1.0", "estimator": "SparseBayesRegressor",
            "n_features": 2, "feature_names": ["a", "b"], "classes": null, "flat": true,
            "blocks": ["constant", {"columns": [0, 1]}], "outputs": [null], "link": "identity",
            "uncertainty": "none", "n_quadrature": null}"#;
        let table = |values: &[f64]| Table {
            shape: vec![values.len()],
            values: values.to_vec(),
        };
        let tables = [
            ("weights.0".into(), table(&[1.0, 2.0, -1.0])),
            ("noise_variance".into(), table(&[0.25])),
        ];
        Parts::new(header, tables.into())
            .and_then(Predictor::from_parts)
            .unwrap()
    }

    async fn ask(body: &str) -> (StatusCode, Value) {
        let service = service(Current::new(Served::new(model(), "test".into())));
        let request = Request::post("/predict")
            .body(Body::from(body.to_owned()))
            .unwrap();
        let answer = service.oneshot(request).await.unwrap();
        let status = answer.status();
        let content = to_bytes(answer.into_body(), 1 << 20).await.unwrap();
        (status, serde_json::from_slice(&content).unwrap())
    }

    #[tokio::test]
    async fn rows_in_both_forms_are_answered() {
        let (status, answer) = ask(r#"{"rows": [[3, 1.5], {"b": 1.5, "a": 3}]}"#).await;
        assert_eq!(status, StatusCode::OK);
        assert_eq!(
            answer,
            json!({"model": "test", "mean": [5.5, 5.5], "std": [0.5, 0.5]})
        );
    }

    #[tokio::test]
    async fn what_is_wrong_is_named() {
        let cases = [
            (r#"{"rows": [[3]]}"#, "rows.0", "2 numbers"),
            (r#"{"rows": [[3, 1], [3, "x"]]}"#, "rows.1.1", "number"),
            (r#"{"rows": [{"a": 3}]}"#, "rows.0.b", "missing"),
            (
                r#"{"rows": [{"a": 3, "b": 1, "c": 2}]}"#,
                "rows.0.c",
                "no feature",
            ),
            (r#"{"rows": [7]}"#, "rows.0", "list"),
            (r#"{"rows": []}"#, "rows", "at least one"),
            (r#"{"row": [3, 1]}"#, "", "rows"),
            (r#"{"rows": [[NaN, 1]]}"#, "", "column"),
        ];
        for (body, place, what) in cases {
            let (status, answer) = ask(body).await;
            assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{body}");
            let error = &answer["errors"][0];
            assert_eq!(error["where"], place, "{body}");
            assert!(
                error["what"].as_str().unwrap().contains(what),
                "{body}: {error}"
            );
        }
    }

    #[test]
    fn a_file_that_is_no_model_changes_nothing() {
        let current = Current::new(Served::new(model(), "test".into()));
        current.reload("Cargo.toml");
        current.reload("a file that does not exist");
        assert_eq!(current.get().version(), "test");
    }

    #[tokio::test]
    async fn requests_too_long_are_refused() {
        let (status, _) = ask(&" ".repeat(MOST_BYTES + 1)).await;
        assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
    }
}
