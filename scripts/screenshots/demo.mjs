// A service with this month and most of the last behind it: the real program, started once for each day with its clock set to that
// day, answers real requests of its operator and of customers, and the ledger records their cost. Only the models are scripts, so
// that nothing is downloaded.
import { spawn, spawnSync } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import fs from 'node:fs';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { dist } from '../bundle.mjs';

const dayMs = 86_400_000;
/** So many of the last month, whose statements then have something to say. */
const daysOfLastMonth = 20;
const requestsPerDay = 24;
const requestsOfCustomersPerDay = 8;
const triesMax = 20;
const startTimeoutMs = 120_000;

const words = `[{ text: ["The", " answer", " depends", " on", " the", " context", "."] }]`;

/** Names, prices and costs of well-known models; each runs a script. */
const models = [
  ['qwen3-235b-a22b', 'Qwen3 235B A22B', 131_072, 70, 280, 40, [42, 160]],
  ['llama-3.3-70b-instruct', 'Llama 3.3 70B Instruct', 131_072, 60, 80, 30, [38, 50]],
  ['mistral-small-24b', 'Mistral Small 24B', 32_768, 10, 30, 20, [7, 21]],
  ['gemma-3-12b-it', 'Gemma 3 12B', 131_072, 5, 10, 12, [3, 6]],
];

const config = `server:
  inference: { port: 0 }
  account: { port: 0 }
accounts: { first_credit_cents: 2500 }
sign_in: { sign_up: open }
invoices:
  seller: { name: Example Computing GmbH, address: ["Beispielweg 1", "10115 Berlin"], country: DE, tax_id: DE123456789 }
  tax: { name: VAT, rate_per_mille: 190 }
plans: [{ name: team, max_concurrency: 20 }, { name: business, max_concurrency: 100 }]
models:
${models
  .map(
    ([id, name, context, input, output, length, [costIn, costOut]]) => `  - id: ${id}
    display_name: ${name}
    context_length: ${context}
    max_output_tokens: null
    pricing: { input_cents_per_million: ${input}, output_cents_per_million: ${output} }
    costs: { input_dollars_per_million: ${costIn / 100}, output_dollars_per_million: ${costOut / 100} }
    sampling: honor
    capabilities: { tools: false, chat_completions: { json_object: false, json_schema: false, regex: false, grammar: false, n: false } }
    backends:
      - engine: scripted
        name: first
        scripts:
          - { when: { last_text: fall }, say: [{ text: "It" }], fault: { after_tokens: 0, type: error } }
          - { say: ${words}, repeat: ${length}, first_token_ms: 20 }`,
  )
  .join('\n')}
`;

export const owner = { email: 'ada@example.com', name: 'Ada Fischer', password: 'correct horse battery' };

/** The keys of the demo, each with its share of the work and its models. */
const keys = [
  { name: 'Support assistant', tags: ['support'], limit: 500, share: 10, models: [0, 0, 1] },
  { name: 'Nightly summaries', tags: ['batch'], share: 6, models: [2, 2, 3] },
  { name: 'Search', tags: ['search'], limit: 200, share: 5, models: [3] },
  { name: 'Ada’s laptop', tags: [], share: 2, models: [0, 1, 2] },
];
/** The first has an owner, who signs in. */
const customers = ['Harbour Robotics', 'Atelier Lumen', 'Northwind Labs', 'Riverside Clinic', 'Open Archive'];
const customer = { email: 'grace@example.org', name: 'Grace Kim', password: 'battery horse correct' };

/** A seeded generator, for the same history each time. */
function random(seed) {
  let state = seed;
  return () => {
    state = (state * 1_664_525 + 1_013_904_223) % 4_294_967_296;
    return state / 4_294_967_296;
  };
}

export class DemoService {
  constructor(folder) {
    this.folder = folder;
    this.random = random(7);
    /** Their cookies. */
    this.operator = new Map();
    this.customer = new Map();
    this.secrets = [];
    /** Of the customers, in their order. */
    this.customerKeys = [];
    this.said = '';
    fs.writeFileSync(path.join(folder, 'tokenhouse.yaml'), config);
  }

  /** Starts the program with its clock set back by these days; resolves when it is ready. */
  async start(daysAgo) {
    const from = this.said.length;
    this.child = spawn(
      process.execPath,
      [
        '--import',
        pathToFileURL(path.join(import.meta.dirname, 'clock.mjs')).href,
        path.join(dist, 'main.js'),
        'serve',
      ],
      {
        cwd: this.folder,
        env: { ...process.env, DEMO_CLOCK_OFFSET_MS: String(-Math.round(daysAgo * dayMs)) },
        stdio: ['ignore', 'ignore', 'pipe'],
      },
    );
    const { child } = this;
    child.stderr.on('data', (text) => (this.said += text));
    await until(() => {
      if (child.exitCode !== null) throw new Error(`the service has ended:\n${this.said.slice(from)}`);
      return /Errors +\S+\/docs/.test(this.said.slice(from));
    }, startTimeoutMs);
    const now = this.said.slice(from);
    this.url = /API +(\S+)\/v1/.exec(now)[1];
    this.accountUrl = /Errors +(\S+)\/docs/.exec(now)[1];
  }

  /** Plays the days, after which the service runs today with operator and customer signed in. */
  async live() {
    const days = new Date().getUTCDate() + daysOfLastMonth;
    for (let day = days - 1; day >= 0; day--) {
      await this.start(day);
      if (day === days - 1) await this.begin();
      const isWeekend = [0, 6].includes(new Date(Date.now() - day * dayMs).getUTCDay());
      const growth = 0.5 + (days - day) / days;
      const share = growth * (isWeekend ? 0.35 : 0.8 + this.random() * 0.4);
      await this.work(Math.round(requestsPerDay * share), Math.round(requestsOfCustomersPerDay * share));
      if (day > 0) await this.stop();
    }
    const issued = spawnSync(process.execPath, [path.join(dist, 'main.js'), 'invoices', 'issue'], { cwd: this.folder });
    if (issued.status !== 0) throw new Error(String(issued.stderr));
    await this.signIn(owner, this.operator);
    await this.signIn(customer, this.customer);
  }

  async stop() {
    const { child } = this;
    if (child === undefined || child.exitCode !== null) return;
    const closed = new Promise((resolve) => child.once('close', resolve));
    child.kill('SIGTERM');
    await closed;
  }

  /** Calls the account API as the browser with these cookies does. */
  async api(method, at, body, cookies = this.operator) {
    const answer = await fetch(this.accountUrl + at, {
      method,
      headers: {
        'sec-fetch-site': 'same-origin',
        origin: this.accountUrl,
        cookie: [...cookies].map(([name, value]) => `${name}=${value}`).join('; '),
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
        ...(method === 'POST' ? { 'idempotency-key': randomUUID() } : {}),
      },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    for (const set of answer.headers.getSetCookie()) {
      const [, name, value] = /^([^=]+)=([^;]*)/.exec(set);
      cookies.set(name, value);
    }
    const text = await answer.text();
    if (!answer.ok) throw new Error(`${method} ${at}: ${answer.status} ${text}`);
    return JSON.parse(text);
  }

  async signIn({ email, password }, cookies) {
    cookies.clear();
    await this.api('POST', '/v1/auth/sign-in', { email, password }, cookies);
  }

  /** Creates the owner, keys and credit of the first day. */
  async begin() {
    await until(() => /\/welcome#[\w-]+\s/.test(this.said), startTimeoutMs);
    await this.api('POST', '/v1/owner', { ...owner, token: /\/welcome#([\w-]+)\s/.exec(this.said)[1] });
    await this.api('PATCH', '/v1/account', { name: 'Example Company' });
    for (const { name, tags, limit } of keys) {
      const budget = limit === undefined ? {} : { limit_cents: limit, limit_reset: 'monthly' };
      const made = await this.api('POST', '/v1/keys', { name, tags, ...budget });
      this.secrets.push(made.key);
    }
    for (const [at, name] of customers.entries()) {
      const invited = at === 0 ? { owner_email: customer.email } : {};
      const made = await this.api('POST', '/v1/admin/accounts', { name, key_name: 'Production', ...invited });
      this.customerKeys.push(made.key);
      const grant = {
        account_id: made.id,
        type: at % 2 === 0 ? 'topup' : 'grant',
        amount_cents: 1000 * (at + 2),
        reason: 'Welcome',
      };
      await this.api('POST', '/v1/admin/credits', grant);
      if (made.owner_invite === null) continue;
      const token = /\/invitation#(.+)$/.exec(made.owner_invite.url)[1];
      const { name: person, password } = customer;
      await this.api('POST', '/v1/invites/accept', { token, name: person, password }, this.customer);
      const billing = { legal_name: name, address_lines: ['1 Quay Street', 'Dublin'], country: 'IE' };
      await this.api('PATCH', '/v1/account', { billing }, this.customer);
    }
  }

  /** Sends the requests of one day, of the operator's programs and of customers, some concurrently, as programs do. */
  async work(own, ofCustomers) {
    const turns = keys.flatMap(({ share }, key) => Array.from({ length: share }, () => key));
    const pick = (list) => list[Math.floor(this.random() * list.length)];
    const asked = Array.from({ length: own }, () => {
      const key = pick(turns);
      return this.request(this.secrets[key], models[pick(keys[key].models)], 300 + this.random() ** 2 * 12_000);
    });
    // The first customers buy the most.
    for (let count = 0; count < ofCustomers; count++) {
      const key = this.customerKeys[Math.floor(this.random() ** 1.6 * customers.length)];
      asked.push(
        this.request(key, models[Math.floor(this.random() ** 1.5 * models.length)], 2000 + this.random() * 24_000),
      );
    }
    for (let at = 0; at < asked.length; at += 8) await Promise.all(asked.slice(at, at + 8).map((one) => this.ask(one)));
  }

  request(key, [model], words) {
    const fails = this.random() < 0.02;
    const content = fails ? 'fall' : 'context '.repeat(Math.floor(words));
    return { key, model, content, stream: this.random() < 0.6 };
  }

  /** A busy machine refuses requests; the history is the same on each. */
  async ask({ key, model, content, stream }) {
    for (let tries = 0; tries < triesMax; tries++) {
      const answer = await fetch(`${this.url}/v1/chat/completions`, {
        method: 'POST',
        headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
        body: JSON.stringify({ model, stream, messages: [{ role: 'user', content }] }),
      });
      await answer.arrayBuffer();
      if (answer.status !== 429) return;
      await new Promise((resolve) => setTimeout(resolve, 1000));
    }
  }
}

async function until(condition, timeoutMs) {
  const endsAt = Date.now() + timeoutMs;
  while (!condition()) {
    if (Date.now() > endsAt) throw new Error(`not so within ${timeoutMs} ms: ${condition}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}
