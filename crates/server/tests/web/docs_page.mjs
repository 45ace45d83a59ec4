// Opens the reference page in a browser without any other host, and prints what a reader sees and what was requested.
import { chromium } from "playwright-core";

const [url, executablePath, screenshot] = process.argv.slice(2);
const browser = await chromium.launch({
  executablePath,
  args: ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"],
});
try {
  const page = await browser.newPage({ viewport: { width: 1280, height: 900 } });
  const requested = [];
  const complaints = [];
  page.on("request", (request) => requested.push(request.url()));
  page.on("console", (message) => message.type() === "error" && complaints.push(message.text()));
  page.on("pageerror", (error) => complaints.push(String(error)));
  await page.goto(`${url}/docs`);
  await page.getByRole("heading", { name: "Campanile", exact: true }).first().waitFor();
  for (const call of ["Emit events", "Read the trace of an event", "Create an API key", "Check liveness"]) {
    await page.getByText(call, { exact: true }).first().waitFor();
  }
  if (screenshot) await page.screenshot({ path: screenshot });
  const text = await page.locator("body").innerText();
  console.log(JSON.stringify({ requested, complaints, text }));
} finally {
  await browser.close();
}
