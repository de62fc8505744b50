import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { after, before, describe, test } from 'node:test';

import { TestService, until } from '../support/service.ts';
import type { CommandResult } from '../support/command.ts';
import { Terminal } from '../support/terminal.ts';
import { CommandFolder, assertNoStack, jsonOf } from './command.ts';
import { mainFile } from '../support/built.ts';

/** `tokenhouse chat` against a running service: the answer on standard output, everything about it on standard error. */
const service = new TestService({
  config: `models:
  - id: demo
    context_length: 8192
    reasoning: { efforts: [none, medium] }
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    backends:
      - engine: scripted
        scripts:
          - when: { last_text: hang }
            say: [ { text: "one two three" } ]
            fault: { after_tokens: 2, type: hang }
          - when: { last_text: ponder }
            say: [ { reasoning: "Let me think. " }, { text: "Done." } ]
          - when: { last_text: endless }
            say: [ { text: "on and " } ]
            repeat: 2000
            pace_ms: 20
          - when: { last_text: break }
            say: [ { text: "one two three" } ]
            fault: { after_tokens: 2, type: error, code: backend_timeout }
          - when: { turn: 1 }
            say: [ { text: "You said something before." } ]
          - say: [ { text: "Hello, you. " } ]
  - id: dear
    context_length: 8192
    pricing: { input_cents_per_million: 1.25, output_cents_per_million: 999.999999, cache_read_microcents_per_million: 3 }
    backends: [ { engine: scripted, scripts: [ { say: [ { text: "Gold" } ], repeat: 7 } ] } ]
`,
});
before(() => service.start());
after(async () => {
  await service.verify();
  await service.dispose();
});

interface ActiveRequests {
  readonly said: () => string;
  readonly ended: Promise<CommandResult>;
  kill(signal: NodeJS.Signals): void;
}

function start(args: readonly string[], input?: string, environment: Record<string, string> = {}): ActiveRequests {
  const child = spawn(process.execPath, [mainFile, 'chat', ...args], {
    cwd: service.folder,
    env: { ...process.env, TOKENHOUSE_KEY: service.key, ...environment },
    stdio: ['pipe', 'pipe', 'pipe'],
    timeout: 120_000,
  });
  let stdout = '';
  let stderr = '';
  child.stdout.on('data', (text: Buffer) => (stdout += text.toString()));
  child.stderr.on('data', (text: Buffer) => (stderr += text.toString()));
  child.stdin.end(input ?? '');
  const ended = new Promise<CommandResult>((resolve) =>
    child.on('close', (code) => {
      assertNoStack(stdout + stderr);
      resolve({ code, stdout, stderr });
    }),
  );
  return { said: () => stdout, ended, kill: (signal) => child.kill(signal) };
}
const chat = (args: readonly string[], input?: string, environment?: Record<string, string>): Promise<CommandResult> =>
  start(args, input, environment).ended;

describe('one question', () => {
  test('from the arguments: only the answer is on standard output', async () => {
    const { code, stdout, stderr } = await chat(['hello there']);
    assert.equal(code, 0, stderr);
    assert.equal(stdout, 'Hello, you. \n');
    assert.match(stderr, /^first token after \d.* · \d+ → \d+ tokens · \$0\.\d+\n$/);
  });

  test('from standard input, with a model that is named', async () => {
    const { code, stdout, stderr } = await chat(['DEAR'], 'what is it?\n');
    assert.equal(code, 0, stderr);
    assert.equal(stdout, `${'Gold'.repeat(7)}\n`);
  });

  test('the cost is to the microcent what the ledger was charged', async () => {
    for (const model of ['demo', 'dear']) {
      const value = jsonOf(await chat([model, 'how', 'much?', '--json'])) as {
        request_id: string;
        text: string;
        cost_microcents: number;
        usage: { prompt_tokens: number; completion_tokens: number };
      };
      const receipt = (await service.usage()).requests.find(({ request_id: id }) => id === value.request_id);
      assert.ok(receipt);
      assert.equal(value.cost_microcents, receipt.cost_microcents);
      assert.ok(value.cost_microcents > 0 && value.text !== '');
      assert.equal(value.usage.completion_tokens, receipt.completion_tokens);
    }
  });

  test('an interrupt cuts the answer: what came stays, exit 130', async () => {
    const running = start(['hang on']);
    await until(() => running.said().includes('two'), 120_000);
    running.kill('SIGINT');
    const { code, stdout, stderr } = await running.ended;
    assert.equal(code, 130);
    assert.equal(stdout, 'one two\n');
    assert.match(stderr, /^cancelled · first token after .* · cost: npx tokenhouse usage\n$/);
    await until(async () => (await service.usage(1)).requests[0]?.ending === 'client_left', 60_000);
  });
});

test('a reader that goes away ends the answer, and with it what is paid', async () => {
  const child = spawn('/bin/sh', ['-c', `"$0" "$1" chat 'endless' | head -c 20`, process.execPath, mainFile], {
    cwd: service.folder,
    env: { ...process.env, TOKENHOUSE_KEY: service.key },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  let read = '';
  child.stdout.on('data', (text: Buffer) => (read += text.toString()));
  await new Promise((resolve) => child.on('close', resolve));
  assert.equal(read.length, 20);
  // All of it would take forty seconds and 4,000 tokens.
  await until(async () => (await service.usage(1)).requests[0]?.ending === 'client_left', 20_000);
  const [request] = (await service.usage(1)).requests;
  assert.ok((request?.completion_tokens ?? 4000) < 1000, JSON.stringify(request));
});

test('what a model thinks is shown beside the answer, not in it', async () => {
  const { code, stdout, stderr } = await chat(['ponder']);
  assert.equal(code, 0, stderr);
  assert.equal(stdout, 'Done.\n');
  assert.match(stderr, /^Let me think\. \n\nfirst token after/);
  const value = jsonOf(await chat(['ponder', '--json'])) as { text: string; reasoning: string };
  assert.deepEqual([value.text, value.reasoning], ['Done.', 'Let me think. ']);
});

test('--temperature is passed on as it is, and nothing but a number is taken', async () => {
  const { code, stderr } = await chat(['hi', '--temperature', '0.25']);
  assert.equal(code, 0, stderr);
  const wrong = await chat(['hi', '--temperature', '3']);
  assert.equal(wrong.code, 64);
  assert.match(wrong.stderr, /a number from 0 to 2/);
});

test('beside the service no key is needed: one is made for the while, and revoked', async () => {
  const { code, stdout, stderr } = await chat(['hello there'], '', { TOKENHOUSE_KEY: '' });
  assert.equal(code, 0, stderr);
  assert.equal(stdout, 'Hello, you. \n');
  const keys = JSON.parse((await service.command('keys', 'list', '--json')).stdout) as {
    id: string;
    account_id: string;
    name: string;
    expires_at: number | null;
    revoked_at: number | null;
  }[];
  const borrowed = keys.filter(({ name }) => name === 'tokenhouse chat');
  assert.equal(borrowed.length, 1);
  assert.equal(borrowed[0]?.account_id, service.accountId);
  assert.ok(borrowed[0]?.revoked_at !== null);
  assert.ok(borrowed[0]?.expires_at !== null, 'it would have expired by itself');
  const audit = await service.command('audit', 'list', '--json');
  const entries = JSON.parse(audit.stdout) as {
    action: string;
    target: string;
    outcome: string;
    actor: { kind: string };
  }[];
  assert.deepEqual(
    entries
      .filter(({ target }) => target === borrowed[0]?.id)
      .map(({ action, outcome, actor }) => [action, outcome, actor.kind]),
    [
      ['key.revoke', 'done', 'cli'],
      ['key.create', 'done', 'cli'],
    ],
  );
});

describe('a refusal is shown with its code', () => {
  for (const [what, args, environment, code, says, repair] of [
    [
      'a wrong key',
      ['hi'],
      { TOKENHOUSE_KEY: 'tkh_wrong' },
      1,
      /^invalid_api_key: /m,
      /tokenhouse explain invalid_api_key/,
    ],
    ['an unknown model', ['nothing', 'hi'], {}, 1, /There is no model "nothing"/, /tokenhouse chat demo "hi"/],
    ['nothing to ask', [], {}, 64, /standard input is empty/, /tokenhouse chat "/],
    ['no service', ['hi', '--url', 'http://127.0.0.1:9'], {}, 69, /No service answers at http/, /npm start/],
    ['a failure in mid-answer', ['break it'], {}, 69, /^backend_timeout: /m, /tokenhouse explain backend_timeout/],
    ['a prompt longer than the window', ['word '.repeat(10_000)], {}, 1, /^context_length_exceeded: /m, /explain/],
  ] as const) {
    test(what, async () => {
      const result = await chat(args, '', environment);
      assert.equal(result.code, code, result.stderr);
      assert.match(result.stderr, says);
      assert.match(result.stderr, /^ {2}why {5}\S/m);
      assert.match(/^ {2}repair {2}(.*)$/m.exec(result.stderr)?.[1] ?? '', repair);
      assert.equal(result.stdout, what === 'a failure in mid-answer' ? 'one two\n' : '');
    });
  }

  test('no key, and the service is another one than that of this folder', async () => {
    const { code, stderr } = await chat(['hi', '--url', service.url], '', { TOKENHOUSE_KEY: '' });
    assert.equal(code, 1);
    assert.match(stderr, /There is no API key/);
    assert.match(stderr, /repair .*keys create/);
  });

  test('another URL than the service that runs here may be named, with /v1 or without', async () => {
    const elsewhere = new CommandFolder();
    for (const url of [service.url, `${service.url}/v1`, `${service.url}/`]) {
      const { code, stdout, stderr } = await elsewhere.run('chat', 'hi', '--url', url, '--key', service.key);
      assert.equal(code, 0, stderr);
      assert.equal(stdout, 'Hello, you. \n');
    }
    elsewhere.dispose();
  });
});

test('a conversation on a terminal: remembers, survives an interrupt, and ends with /exit', async () => {
  const terminal = new Terminal([process.execPath, mainFile, 'chat', 'demo', '--url', service.url], {
    folder: service.folder,
    environment: { TOKENHOUSE_KEY: '' },
  });
  await terminal.shows(/API key: /);
  terminal.type(`${service.key}\r`);
  await terminal.shows(/demo · \/exit ends the chat[^]*> /);
  assert.ok(!terminal.screen.includes(service.key), 'the key was shown');
  terminal.type('hello\r');
  await terminal.shows(/Hello, you\.[^]*\$0\.\d+\n[^]*> /);
  let mark = terminal.screen.length;
  terminal.type('please hang\r');
  await terminal.shows(/one two/, mark);
  terminal.type('\u0003');
  await terminal.shows(/cancelled · /, mark);
  mark = terminal.screen.length;
  terminal.type('break\r');
  await terminal.shows(/backend_timeout: [^]*repair {2}tokenhouse explain backend_timeout/, mark);
  mark = terminal.screen.length;
  // Cut answers are part of the conversation, so this one has more turns than the script of the first has.
  terminal.type('and now?\r');
  await terminal.shows(/Hello, you\.[^]*\$0\.\d+\n/, mark);
  // A command that does not exist is not a message: it would be charged.
  terminal.type('/nothing\r');
  await terminal.shows(/\/nothing is no command[^]*\/new +forget[^]*> /);
  terminal.type('/exit\r');
  assert.equal(await terminal.ended(), 0, terminal.screen);
});
