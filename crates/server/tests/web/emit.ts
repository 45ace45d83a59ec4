// Emits an event with a client that is generated from the API's document, and reads its trace.
import createClient from "openapi-fetch";
import type { paths } from "./schema.js";

declare const process: { argv: string[] };
const [url, key] = process.argv.slice(2);
const client = createClient<paths>({ baseUrl: url, headers: { Authorization: `Bearer ${key}` } });

const emitted = await client.POST("/v1/events", {
  body: {
    event_id: "from-typescript",
    event_type: "ORDER_READY",
    aggregate_type: "RESTAURANT",
    aggregate_id: 5,
    payload: { title: "Order 7 is ready" },
    priority: "HIGH",
  },
});
if (emitted.error) throw new Error(emitted.error.detail);

const again = await client.POST("/v1/events", {
  body: [{ event_id: "from-typescript", event_type: "OTHER", aggregate_type: "RESTAURANT", aggregate_id: "5" }],
});
if (again.error?.type !== "urn:campanile:conflict") throw new Error(`not refused: ${JSON.stringify(again.data)}`);

const trace = await client.GET("/v1/events/{id}", { params: { path: { id: "from-typescript" } } });
if (trace.error) throw new Error(trace.error.detail);
const status: "PENDING" | "PUBLISHED" | "PROCESSED" | "FAILED" | "CANCELLED" = trace.data.event.status;
console.log(JSON.stringify({ accepted: emitted.data, status }));
