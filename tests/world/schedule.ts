/** One schedule: what a seed makes clients, servers, the clock, the disk and the process do; then everything heals, and has to end. */
import { createHmac } from 'node:crypto';
import { rmSync } from 'node:fs';
import { DatabaseSync } from '@photostructure/sqlite';

import { Backends } from './backends.ts';
import { ask, seenOf, type Answer, type Seen } from './clients.ts';
import type { Disk, Mishap } from './disk.ts';
import { Host } from './host.ts';
import { faultsOf } from './invariants.ts';
import type { Scripts } from './machine.ts';
import type * as Program from './program.ts';
import { Scheduler } from './scheduler.ts';
import { config, copyOf, worldStartMs, type Template, type WorldKey } from './setup.ts';

/** A chat completion that a client asked for. */
export interface Asked {
  readonly mark: string;
  readonly publicId: string;
  readonly by: WorldKey;
  readonly idempotencyKey: string | undefined;
  readonly tokensMax: number | undefined;
  /** When its client had what it got. */
  overMs: number;
  answer: Answer;
  seen: Seen;
}

export interface BatchAsked {
  readonly id: string;
  readonly customIds: readonly string[];
  status: string;
  results: readonly BatchResult[];
}

export interface BatchResult {
  readonly custom_id: string;
  readonly response: {
    readonly status_code: number;
    readonly request_id: string;
    readonly body: { readonly usage?: { readonly prompt_tokens: number; readonly completion_tokens: number } };
  } | null;
}

/** What the world knows at the end of a schedule. */
export interface Story {
  readonly template: Template;
  readonly scheduler: Scheduler;
  readonly backends: Backends;
  readonly disk: Disk;
  readonly host: Host;
  readonly asked: readonly Asked[];
  readonly batches: readonly BatchAsked[];
  /** Microcents of all payments that were made: each counts once. */
  readonly paidMicrocents: bigint;
  /** What was noticed on the way. */
  readonly faults: string[];
}

export interface Played {
  readonly faults: readonly string[];
  readonly trace: readonly string[];
  readonly tasks: number;
  readonly deaths: number;
}

export interface World {
  readonly scripts: Scripts;
  readonly template: Template;
  /** The folder for the databases of schedules. */
  readonly folder: string;
}

export async function play(world: World, seed: number): Promise<Played> {
  const scheduler = new Scheduler(seed, worldStartMs);
  const folder = `${world.folder}/seed-${seed}`;
  const disk = copyOf(world.template, scheduler, folder);
  const backends = new Backends(scheduler);
  const dial = (host: string, _port: number, wire: Parameters<Backends['dial']>[1]): boolean =>
    backends.dial(host, wire);
  const host = new Host({ scheduler, scripts: world.scripts, disk, dial }, config);
  const schedule = new Schedule(world, { scheduler, disk, backends, host });
  try {
    await scheduler.run(schedule.play());
    schedule.faults.push(...(await faultsOf(schedule)));
  } catch (error) {
    schedule.faults.push(
      `the world failed: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}`,
    );
  }
  host.kill();
  disk.rest();
  rmSync(folder, { recursive: true, force: true });
  return { faults: schedule.faults, trace: scheduler.trace, tasks: scheduler.tasksRun, deaths: host.deathsMs.length };
}

type Parts = Pick<Story, 'scheduler' | 'disk' | 'backends' | 'host'>;

/** The faulty part of a schedule takes about so long. */
const lengthMs = 4_000;

class Schedule implements Story {
  readonly template: Template;
  readonly scheduler: Scheduler;
  readonly backends: Backends;
  readonly disk: Disk;
  readonly host: Host;
  readonly asked: Asked[] = [];
  readonly batches: BatchAsked[] = [];
  paidMicrocents = 0n;
  readonly faults: string[] = [];
  readonly #scripts: Scripts;
  #isOver = false;
  #isStarting = false;
  #marks = 0;

  constructor({ template, scripts }: World, { scheduler, disk, backends, host }: Parts) {
    this.template = template;
    this.#scripts = scripts;
    this.scheduler = scheduler;
    this.disk = disk;
    this.backends = backends;
    this.host = host;
  }

  async play(): Promise<void> {
    const { scheduler, host } = this;
    await host.start();
    host.died = () => void this.#startAgain();
    await Promise.all([...this.#requests(), ...this.#payments(), ...this.#batchJobs(), ...this.#mishaps()]);
    this.disk.heal();
    this.backends.isHealed = true;
    scheduler.note('healed');
    await this.#redeliver();
    await this.#batchesEnd();
    await this.#comesToRest();
    this.#isOver = true;
    await host.stop();
    scheduler.note('stopped');
  }

  /** As a supervisor does: a process that has ended is started again. */
  async #startAgain(): Promise<void> {
    if (this.#isStarting) return;
    this.#isStarting = true;
    while (!this.#isOver && !this.host.isUp) {
      await this.scheduler.sleep(10 + 200 * this.scheduler.random());
      await this.host.start();
    }
    this.#isStarting = false;
  }

  #requests(): Promise<void>[] {
    const { scheduler } = this;
    // Sometimes all of them come at once, with one key.
    const burst = scheduler.chance(0.15) ? { by: scheduler.pick(this.template.keys), atMs: 500 } : undefined;
    return Array.from({ length: burst === undefined ? scheduler.between(3, 14) : 14 }, async () => {
      await scheduler.sleep(burst === undefined ? lengthMs * scheduler.random() : burst.atMs + 50 * scheduler.random());
      const idempotencyKey = scheduler.chance(0.2) ? `key-${this.#marks}` : undefined;
      const mark = `r${this.#marks++}`;
      const request = this.#chosen(mark, burst?.by);
      await this.#chat(request, mark, idempotencyKey, scheduler.chance(0.3));
      // A client that lost its answer asks again, and tells so.
      if (idempotencyKey !== undefined)
        for (let again = 0; again < 2; again++) {
          await scheduler.sleep(300 * scheduler.random());
          await this.host.comesUp();
          await this.#chat(request, mark, idempotencyKey, false);
        }
    });
  }

  #chosen(mark: string, by?: WorldKey): Chosen {
    const { scheduler, template } = this;
    const tokensMax = scheduler.pick([undefined, 4, 16, 64]);
    const body = {
      model: 'm',
      messages: [{ role: 'user', content: `${mark} says this` }],
      ...(tokensMax === undefined ? {} : { max_tokens: tokensMax }),
      ...(scheduler.chance(0.6) ? { stream: true, stream_options: { include_usage: true } } : {}),
    };
    return { by: by ?? scheduler.pick(template.keys), tokensMax, body: JSON.stringify(body) };
  }

  async #chat(
    { by, tokensMax, body }: Chosen,
    mark: string,
    idempotencyKey: string | undefined,
    leaves: boolean,
  ): Promise<void> {
    const { scheduler } = this;
    const publicId = `req_${(this.asked.length + 1).toString(16).padStart(12, '0')}`;
    const one: Asked = {
      ...{ mark, publicId, by, idempotencyKey, tokensMax, overMs: 0 },
      answer: { status: 0, headers: new Map(), body: '', isWhole: false },
      seen: { kind: 'part' },
    };
    this.asked.push(one);
    scheduler.note(`asks ${publicId} ${mark} ${by.id}${leaves ? ', will leave' : ''}`);
    const how = scheduler.pick(['reset', 'fin'] as const);
    one.answer = await ask(scheduler, this.host, {
      host: 'inference',
      path: '/v1/chat/completions',
      key: by.key,
      headers: {
        'x-request-id': publicId,
        ...(idempotencyKey === undefined ? {} : { 'idempotency-key': idempotencyKey }),
      },
      body,
      leaves: leaves ? { bytes: scheduler.between(1, 3_000), ms: 1_000 * scheduler.random(), how } : undefined,
    });
    one.seen = seenOf(one.answer);
    one.overMs = scheduler.nowMs;
    scheduler.note(`sees ${publicId} ${one.answer.status} ${JSON.stringify(one.seen)}`);
  }

  /** Top-ups, whose events come once, twice, late, and again in any order. */
  #payments(): Promise<void>[] {
    const { scheduler, template } = this;
    return Array.from({ length: scheduler.pick([0, 0, 1, 2]) }, async (_, number) => {
      await scheduler.sleep(lengthMs * scheduler.random());
      await this.host.comesUp();
      const made = await ask(scheduler, this.host, {
        host: 'account',
        path: '/v1/credits/topups',
        key: template.manager,
        headers: { 'idempotency-key': `top-up-${number}` },
        body: JSON.stringify({ amount_cents: 500 }),
      });
      if (made.status !== 201 || !made.isWhole) return;
      const { checkout_url: url } = JSON.parse(made.body) as { readonly checkout_url: string | null };
      if (url === null) return;
      const checkout = url.slice(url.lastIndexOf('/') + 1);
      for (let tries = 0; tries < 2; tries++) {
        const outcome = scheduler.pick(['success', 'duplicate', 'delay']);
        scheduler.note(`pays ${checkout}: ${outcome}`);
        const answer = await ask(scheduler, this.host, {
          host: 'account',
          path: new URL(url).pathname,
          headers: { 'content-type': 'application/x-www-form-urlencoded' },
          body: `outcome=${outcome}`,
        });
        scheduler.note(`paid ${answer.status}`);
        if (answer.status === 303) break;
        await scheduler.sleep(200);
        await this.host.comesUp();
      }
      await scheduler.sleep(500 * scheduler.random());
      if (scheduler.chance(0.5)) await this.#deliverEvents();
    });
  }

  /** The provider sends what it has, as it may do at any time. Resolves with whether all of it was taken. */
  async #deliverEvents(): Promise<boolean> {
    const { scheduler } = this;
    await this.host.comesUp();
    let isTaken = true;
    for (const body of this.#events()) {
      const seconds = Math.floor(scheduler.wallMs / 1_000);
      const digest = createHmac('sha256', this.#eventSecret()).update(`${seconds}.${body}`).digest('hex');
      const answer = await ask(scheduler, this.host, {
        host: 'account',
        path: '/v1/webhooks/payments',
        headers: { 'stripe-signature': `t=${seconds},v1=${digest}` },
        body,
      });
      scheduler.note(`event ${answer.status} ${/"outcome":"\w+"/.exec(answer.body)?.[0] ?? ''}`);
      isTaken &&= answer.status === 200;
    }
    return isTaken;
  }

  #eventSecret(): string {
    const { openSecret, demoEventSecret } = this.#scripts.exportsOf('program') as unknown as typeof Program;
    const secret = openSecret({ fromEnvironment: undefined, dataFolder: `${this.disk.folder}/data`, warn: () => {} });
    return demoEventSecret(secret.demoPayments);
  }

  #events(): readonly string[] {
    return this.#ofProvider('event');
  }

  /** What the provider knows, which has its records in the same database. */
  #ofProvider(kind: 'event' | 'checkout'): readonly string[] {
    const reader = new DatabaseSync(this.disk.file, { readOnly: true });
    const rows = reader.prepare('select body from demo_payment_object where kind = ? order by id').all(kind);
    reader.close();
    return (rows as { readonly body: string }[]).map(({ body }) => body);
  }

  async #redeliver(): Promise<void> {
    for (let tries = 0; tries < 20; tries++) {
      if (await this.#deliverEvents()) {
        const checkouts = this.#ofProvider('checkout').map((body) => JSON.parse(body) as Checkout);
        for (const { status, amountCents } of checkouts)
          if (status === 'paid') this.paidMicrocents += BigInt(amountCents) * 1_000_000n;
        return;
      }
      await this.scheduler.sleep(500);
    }
    this.faults.push('the events of payments are not taken');
  }

  #batchJobs(): Promise<void>[] {
    const { scheduler, template } = this;
    if (!scheduler.chance(0.3)) return [];
    const begin = async (): Promise<void> => {
      await scheduler.sleep(0.5 * lengthMs * scheduler.random());
      await this.host.comesUp();
      const customIds = Array.from({ length: scheduler.between(2, 6) }, (_, line) => `b${line}`);
      const lines = customIds.map((id) => ({
        ...{ custom_id: id, method: 'POST', url: '/v1/chat/completions' },
        body: { model: 'm', max_tokens: 16, messages: [{ role: 'user', content: `${id} says this` }] },
      }));
      const file = lines.map((line) => `${JSON.stringify(line)}\n`).join('');
      const part = 'content-disposition: form-data; name=';
      const form = `--x\r\n${part}"purpose"\r\n\r\nbatch\r\n--x\r\n${part}"file"; filename="b.jsonl"\r\n\r\n${file}\r\n--x--\r\n`;
      const post = (path: string, body: string, type: string): Promise<Answer> =>
        ask(scheduler, this.host, {
          ...{ host: 'inference', path, key: template.owner.key, body },
          headers: { 'content-type': type },
        });
      const uploaded = await post('/v1/files', form, 'multipart/form-data; boundary=x');
      scheduler.note(`uploads ${uploaded.status}`);
      if (uploaded.status !== 200 || !uploaded.isWhole) return;
      const { id: fileId } = JSON.parse(uploaded.body) as { readonly id: string };
      const asks = { input_file_id: fileId, endpoint: '/v1/chat/completions', completion_window: '24h' };
      const made = await post('/v1/batches', JSON.stringify(asks), 'application/json');
      scheduler.note(`batch ${made.status}`);
      if (made.status !== 200 || !made.isWhole) return;
      const { id } = JSON.parse(made.body) as { readonly id: string };
      this.batches.push({ id, customIds, status: 'created', results: [] });
    };
    return [begin()];
  }

  async #get(path: string): Promise<Answer> {
    const asked = { host: 'inference', method: 'GET', path, key: this.template.owner.key } as const;
    return await ask(this.scheduler, this.host, asked);
  }

  /** Batches have to end, and their results are read. */
  async #batchesEnd(): Promise<void> {
    for (const batch of this.batches) {
      let files: readonly (string | null)[] = [];
      for (let looks = 0; looks < 400 && !['completed', 'expired', 'failed'].includes(batch.status); looks++) {
        await this.host.comesUp();
        const { status, body, isWhole } = await this.#get(`/v1/batches/${batch.id}`);
        if (status === 200 && isWhole) {
          const shown = JSON.parse(body) as {
            status: string;
            output_file_id: string | null;
            error_file_id: string | null;
          };
          batch.status = shown.status;
          files = [shown.output_file_id, shown.error_file_id];
        }
        await this.scheduler.sleep(500);
      }
      const texts: string[] = [];
      for (const file of files) if (file !== null) texts.push((await this.#get(`/v1/files/${file}/content`)).body);
      const lines = texts
        .join('')
        .split('\n')
        .filter((line) => line !== '');
      batch.results = lines.map((line) => JSON.parse(line) as BatchResult);
      this.scheduler.note(`batch ${batch.status}, ${lines.length} results`);
    }
  }

  /** Nothing runs, nothing is held: the part of a schedule that shows that every hold ends. */
  async #comesToRest(): Promise<void> {
    let last = '';
    for (let looks = 0; looks < 240; looks++) {
      await this.host.comesUp();
      const { body } = await ask(this.scheduler, this.host, { host: 'account', method: 'GET', path: '/metrics' });
      const figure = (name: string): string => new RegExp(`^${name} (\\S+)$`, 'm').exec(body)?.[1] ?? '?';
      const names = ['tokenhouse_requests_running', 'tokenhouse_holds_open', 'tokenhouse_held_microcents'];
      last = names.map((name) => `${name} ${figure(name)}`).join(', ');
      if (names.every((name) => figure(name) === '0')) return;
      await this.scheduler.sleep(500);
    }
    this.faults.push(`it does not come to rest: ${last}`);
  }

  #mishaps(): Promise<void>[] {
    const { scheduler, host, disk } = this;
    const often = scheduler.pick([0, 1, 1, 2, 3]);
    return Array.from({ length: often }, async () => {
      await scheduler.sleep(lengthMs * scheduler.random());
      const kind = scheduler.pick(['kill', 'statement', 'errors', 'slow', 'clock', 'day'] as const);
      scheduler.note(`mishap: ${kind}`);
      const mishaps: readonly Mishap[] = ['busy', 'full', 'broken'];
      switch (kind) {
        case 'kill':
          host.kill();
          return;
        case 'statement':
          disk.plan(scheduler.pick(['dies-before', 'dies-after']), scheduler.between(0, 40), 1);
          return;
        case 'errors':
          disk.plan(scheduler.pick(mishaps), scheduler.between(0, 30), scheduler.pick([1, 1, 3, 12]));
          return;
        case 'slow':
          disk.slowMs = scheduler.pick([50, 500, 3_000, 6_000]);
          await scheduler.sleep(2_000);
          disk.slowMs = 0;
          return;
        case 'clock':
          scheduler.setClock(scheduler.between(-8_000, 20_000));
          return;
        case 'day':
          scheduler.setClock(scheduler.pick([-3_600_000, 3_600_000, 86_400_000]));
          return;
      }
    });
  }
}

interface Checkout {
  readonly status: string;
  readonly amountCents: number;
}

interface Chosen {
  readonly by: WorldKey;
  readonly tokensMax: number | undefined;
  readonly body: string;
}
