/**
 * Open WebUI with what `tokenhouse launch` prints for it: somebody signs up, finds the model, and gets answers that the client's own key
 * is charged for, from its API and in a browser; and sees the error of a key that was revoked. Its data are in an empty folder.
 */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { closeSync, openSync, readFileSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { test } from 'node:test';
import type { TestContext } from 'node:test';

import { temporaryFolder } from '../../store/fixture.ts';
import { runProcess } from '../../support/command.ts';
import { freePort } from '../../support/free-port.ts';
import { scriptedModel, TestService, until } from '../../support/service.ts';
import { openBrowser } from '../browser/browser.ts';

const name = 'open-webui';
/** It makes its tables and loads 400 MB of Python at its first start: half a minute. */
const startTimeoutMs = 240_000;
const answer = 'The answer of the service.';
/** It has the model make a title, tags and further questions, too. */
const script = `- { when: { last_text: "### Task" }, say: [ { text: "{}" } ] }
- say: [ { text: "${answer}" } ]`;

for (const tools of [true, false])
  test(`Open WebUI answers on a model that calls ${tools ? '' : 'no '}tools, also in a browser`, async (t) => {
    const service = new TestService({
      config: scriptedModel(script, { settings: `capabilities: { tools: ${tools} }` }),
    });
    t.after(() => service.dispose());
    await service.start();
    const home = temporaryFolder(t);
    const own = { HOME: home, XDG_DATA_HOME: '' };
    const config = ['--config', join(service.folder, 'tokenhouse.yaml')];
    const done = await runProcess(home, ['launch', name, '--yes', '--no-start', ...config], own);
    assert.equal(done.code, 0, done.stderr);
    const url = await started(t, home, done.stderr);
    const charged = async (): Promise<number> => {
      const { stdout } = await runProcess(service.folder, ['costs', '--by', 'tag', '--json']);
      const rows = JSON.parse(stdout) as Record<string, unknown>[];
      return Number(rows.find((row) => Object.values(row).includes(name))?.['requests'] ?? 0);
    };

    const person = { name: 'Ada', email: 'ada@example.org', password: 'correct horse battery' };
    const signedUp = await ask(url, '/api/v1/auths/signup', { body: person });
    assert.equal(signedUp.status, 200, signedUp.text);
    const { token } = JSON.parse(signedUp.text) as { token: string };
    const listed = await ask(url, '/api/models', { token });
    assert.deepEqual(
      (JSON.parse(listed.text) as { data: { id: string }[] }).data.map(({ id }) => id),
      ['demo'],
    );
    const question = { model: 'demo', messages: [{ role: 'user', content: 'What is the answer?' }] };
    const complete = (stream: boolean) => ask(url, '/api/chat/completions', { token, body: { ...question, stream } });
    const whole = await complete(false);
    assert.ok(whole.text.includes(answer), whole.text);
    const { text } = await complete(true);
    assert.match(text, /^data: [^]*\ndata: \[DONE\]\s*$/);
    assert.equal([...text.matchAll(/^data: (\{.*\})$/gm)].map(([, json]) => deltaOf(json!)).join(''), answer);
    assert.equal(await charged(), 2);

    const browser = await openBrowser(t);
    const page = await browser.newPage();
    page.setDefaultTimeout(120_000);
    await page.addInitScript(`localStorage.token = ${JSON.stringify(token)}`);
    await page.goto(url);
    // It first shows what is new, to its administrator.
    await page.getByRole('button', { name: "Okay, Let's Go!" }).click();
    await page.getByRole('button', { name: /demo/i }).first().waitFor();
    await page.locator('#chat-input').click();
    await page.keyboard.type('What is the answer?');
    await page.locator('#send-message-button').click();
    await page.getByText(answer).first().waitFor();
    assert.ok((await charged()) > 2);

    const { key } = service.log.filter(({ event }) => event === 'answer').at(-1)!;
    assert.equal((await runProcess(service.folder, ['keys', 'revoke', String(key)])).code, 0);
    const refused = await complete(false);
    assert.match(refused.text, /invalid_api_key|does not match a live key/);
  });

const deltaOf = (json: string): string =>
  (JSON.parse(json) as { choices?: { delta?: { content?: string } }[] }).choices?.[0]?.delta?.content ?? '';

async function ask(
  url: string,
  path: string,
  { token, body }: { readonly token?: string; readonly body?: object },
): Promise<{ readonly status: number; readonly text: string }> {
  const response = await fetch(`${url}${path}`, {
    method: body === undefined ? 'GET' : 'POST',
    headers: {
      'content-type': 'application/json',
      ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
    },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  return { status: response.status, text: await response.text() };
}

/** Gives a shell the lines that `said` has for it, and resolves with the address when it answers. */
async function started(t: TestContext, home: string, said: string): Promise<string> {
  const exports = said.split('\n').filter((line) => line.startsWith('export '));
  const command = /^Start it: (.+)$/m.exec(said)![1]!;
  const port = await freePort();
  const logFile = join(home, 'log');
  const out = openSync(logFile, 'w');
  const lines = [...exports, `exec ${command} --host 127.0.0.1 --port ${port}`];
  const child = spawn('sh', ['-c', lines.join('\n')], {
    cwd: home,
    env: {
      PATH: `${process.env['TOKENHOUSE_TEST_OPEN_WEBUI']}${delimiter}${process.env['PATH']}`,
      HOME: home,
      DATA_DIR: join(home, 'data'),
    },
    stdio: ['ignore', out, out],
  });
  closeSync(out);
  const ended = new Promise((resolve) => child.once('close', resolve));
  t.after(async () => {
    child.kill('SIGKILL');
    await ended;
  });
  const url = `http://127.0.0.1:${port}`;
  await until(async () => {
    assert.equal(child.exitCode, null, readFileSync(logFile, 'utf8'));
    return await fetch(`${url}/health`).then(
      ({ ok }) => ok,
      () => false,
    );
  }, startTimeoutMs);
  return url;
}
