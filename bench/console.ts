/** How long the pages of the console take on many rows of usage, in a real Chromium whose processor is four times slower. */
import { join } from 'node:path';
import type { Page } from 'playwright-core';
import { sql } from 'kysely';

import { openConnection } from '../src/store/sqlite/connection.ts';
import { kyselyOn } from '../src/store/sqlite/dialect.ts';
import { openBrowser } from '../tests/suites/browser/browser.ts';
import { consolePages } from '../tests/suites/browser/console-pages.ts';
import { noFeatures, scriptedModel, TestService } from '../tests/support/service.ts';
import { owner, Visitor } from '../tests/support/visitor.ts';
import { say } from './command.ts';
import { filledAccounts, filledDays, fillUsage } from './fill-usage.ts';

const slowdown = 4;
const times = 3;
/** Until then a page must show what it is about. */
const patienceMs = 60_000;

interface Reading {
  readonly path: string;
  /** From the navigation to a page without skeletons whose main thread has nothing to do. */
  readonly interactiveMs: number;
  /** The largest body of an answer of the API, as it was sent. */
  readonly largestBytes: number;
  readonly largest: string;
  readonly requests: number;
}

/** Resolves with a table of every page that somebody sees who is signed in. `chromium`: the program. */
export async function measureConsole({ rows, chromium }: { readonly rows: number; readonly chromium: string }) {
  process.env['TOKENHOUSE_TEST_CHROMIUM'] = chromium;
  const ends: (() => unknown)[] = [];
  const later = { after: (end: () => unknown): void => void ends.unshift(end) };
  try {
    const service = new TestService({ config: '', console: true, firstCreditCents: '1000000' });
    later.after(() => service.dispose());
    service.writeConfig(
      `server:\n  inference: { port: 0 }\n  account: { port: 0 }\n${scriptedModel('- { say: [{ text: "Paris." }] }', { settings: noFeatures })}`,
    );
    await service.start();
    await new Visitor(service).becomeOwner();
    await service.stop();
    const filled = await fill(service, rows);
    await service.start();
    const answer = await service.chat({ model: 'demo', messages: [{ role: 'user', content: 'hi' }] });
    await answer.text();
    const readings = await visitAll(service, answer.headers.get('x-request-id')!, later);
    return [
      '| page | interactive, ms | requests | largest answer, kB | of |',
      '|-|-:|-:|-:|-|',
      ...readings.map(
        ({ path, interactiveMs, requests, largestBytes, largest }) =>
          `| \`${path}\` | ${interactiveMs.toFixed(0)} | ${requests} | ${(largestBytes / 1000).toFixed(1)} | \`${largest}\` |`,
      ),
      '',
      `- ${filled}; the rows end now, and are over ${filledDays} days and ${filledAccounts} accounts; the one that looks has a tenth of them`,
      `- Chromium with a processor ${slowdown} times slower, 1,280 px, its cache warm; medians of ${times} navigations. Interactive: nothing is a skeleton any more, and the main thread is idle`,
    ].join('\n');
  } finally {
    for (const end of ends) await end();
  }
}

async function fill(service: TestService, rows: number): Promise<string> {
  const db = kyselyOn(openConnection(join(service.folder, 'data', 'tokenhouse.db')));
  const run = (text: string): Promise<unknown> => sql.raw(text).execute(db);
  for (const pragma of ['synchronous = off', 'cache_size = -1000000', 'temp_store = memory'])
    await run(`pragma ${pragma}`);
  const line = await fillUsage({
    ...({ name: 'SQLite', dialect: 'sqlite', db, run, rows, largestAccount: service.accountId } as const),
  });
  await db.destroy();
  return line;
}

async function visitAll(
  service: TestService,
  requestId: string,
  later: { after: (end: () => unknown) => void },
): Promise<readonly Reading[]> {
  const browser = await openBrowser(later);
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 } });
  const page = await context.newPage();
  await page.goto(`${service.accountUrl}/sign-in`);
  await page.locator('input[name=email]').fill(owner.email);
  await page.locator('input[name=password]').fill(owner.password);
  await page.locator('button[type=submit]').click();
  await page.waitForURL(`${service.accountUrl}/`);
  const devtools = await context.newCDPSession(page);
  await devtools.send('Emulation.setCPUThrottlingRate', { rate: slowdown });
  const readings: Reading[] = [];
  for (const { path, signedIn } of consolePages) {
    // Errors and dialogs show nothing that grows with the rows.
    if (signedIn !== true || /nothing|broken|KEY|FAILED|OTHER|ENDPOINT|req_0|=true|cancelled|gallery/.test(path))
      continue;
    const chosen = path.replace('REQUEST', requestId);
    say(chosen);
    await visit(page, service.accountUrl + chosen);
    const found: Omit<Reading, 'path'>[] = [];
    for (let time = 0; time < times; time++) found.push(await visit(page, service.accountUrl + chosen));
    found.sort((one, other) => one.interactiveMs - other.interactiveMs);
    readings.push({ path, ...found[Math.floor(times / 2)]! });
  }
  return readings;
}

/** In the page; as text, because its policy allows no other script. Resolves with the milliseconds since the navigation. */
const untilInteractive = `new Promise((resolve, reject) => {
  const look = () => {
    const isShown = document.querySelector('main h1') !== null && document.querySelector('[role=status][aria-label=Loading]') === null;
    if (isShown) requestIdleCallback(() => resolve(performance.now()));
    else if (performance.now() > ${patienceMs}) reject(new Error('the page shows nothing'));
    else requestAnimationFrame(look);
  };
  look();
})`;

async function visit(page: Page, url: string): Promise<Omit<Reading, 'path'>> {
  const answers: Promise<{ readonly of: string; readonly bytes: number }>[] = [];
  const note = (answer: { url(): string; request(): { sizes(): Promise<{ responseBodySize: number }> } }): void => {
    const { pathname } = new URL(answer.url());
    if (!pathname.startsWith('/v1/')) return;
    const sized = answer.request().sizes();
    answers.push(sized.then(({ responseBodySize }) => ({ of: pathname, bytes: responseBodySize })));
  };
  page.on('response', note);
  await page.goto(url, { waitUntil: 'commit' });
  const interactiveMs = (await page.evaluate(untilInteractive)) as number;
  page.off('response', note);
  const sizes = await Promise.all(answers);
  const [largest] = sizes.toSorted((one, other) => other.bytes - one.bytes);
  return {
    interactiveMs,
    requests: sizes.length,
    largestBytes: largest?.bytes ?? 0,
    largest: largest?.of ?? '',
  };
}
