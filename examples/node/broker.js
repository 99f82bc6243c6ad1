// A broker for tests: `ottla --test`, a child of this process.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";

export class Broker {
  /** Start a broker with settings such as {"ottla.clock": "manual"}; it accepts requests once this returns. */
  static async start(settings = {}) {
    const options = Object.entries(settings).flatMap(([name, value]) => ["-o", `${name}=${value}`]);
    const child = spawn("ottla", ["--test", "--log-level", "WARNING", ...options], { stdio: ["ignore", "pipe", "inherit"] });
    const [line] = await Promise.race([
      once(createInterface({ input: child.stdout }), "line"), // rejects if there is no `ottla`
      once(child, "exit").then(([code]) => Promise.reject(new Error(`ottla has ended with ${code}`))),
    ]);
    return new Broker(JSON.parse(line), child);
  }

  constructor({ bootstrap, control }, child) {
    Object.assign(this, { bootstrap, control, child });
  }

  /** End the broker; its data is gone then. */
  async stop() {
    const ended = once(this.child, "exit");
    this.child.kill();
    await ended;
  }

  /** Ask the broker for something: docs/testing.md and GET /openapi.json list what there is. */
  async call(path, arguments_ = {}) {
    const headers = { "Content-Type": "application/json" };
    const response = await fetch(this.control + path, { method: "POST", headers, body: JSON.stringify(arguments_) });
    const answer = await response.json();
    if (!response.ok) {
      throw new Error(`${path}: ${JSON.stringify(answer)}`);
    }
    return answer;
  }
}
