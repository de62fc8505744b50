import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after } from 'node:test';
import type { TestContext } from 'node:test';

import axe from 'axe-core';
import type { AxeResults } from 'axe-core';
import { chromium } from 'playwright-core';
import type { Browser, BrowserContext, Page } from 'playwright-core';

/** What a page is looked at in: one colour scheme or both, on a phone or on a desktop. */
export interface Look {
  readonly colorSchemes: readonly ('light' | 'dark')[];
  readonly width: number;
  readonly name: string;
}

const widths = [360, 1280];

export const looks: readonly Look[] = (['light', 'dark'] as const).flatMap((colorScheme) =>
  widths.map((width) => ({ colorSchemes: [colorScheme], width, name: `${colorScheme}, ${width} px` })),
);

/** A page changes its colours while it is open, so that both are seen for one load of it. Its width may decide what it begins with. */
export const looksInBoth: readonly Look[] = widths.map((width) => ({
  colorSchemes: ['light', 'dark'],
  width,
  name: `light and dark, ${width} px`,
}));

/** A browser of one test, closed with it. */
export async function openBrowser(t: Pick<TestContext, 'after'>): Promise<Browser> {
  return closedWith(t, await launch(headlessShell));
}

/** The whole Chromium, with the layer of its window, though nobody sees it: for what people do from the first page to the last. */
export async function openChromium(t: Pick<TestContext, 'after'>, args: string[] = []): Promise<Browser> {
  return closedWith(t, await launch(chromiumProgram, args));
}

function closedWith(t: Pick<TestContext, 'after'>, browser: Browser): Browser {
  t.after(() => browser.close());
  return browser;
}

/** One browser for all tests of a file, which share neither cookies nor caches in it: to start it takes a second of processor. */
export function browserOfFile(): () => Promise<Browser> {
  let opened: Promise<Browser> | undefined;
  after(async () => await (await opened)?.close());
  return () => (opened ??= launch(headlessShell));
}

/** What the setup has found. */
const chromiumProgram = process.env['TOKENHOUSE_TEST_CHROMIUM']!;
const headlessShell = process.env['TOKENHOUSE_TEST_HEADLESS_SHELL'] ?? chromiumProgram;

// The tests may run as root, or in a container, where Chromium has no sandbox; it sees our own pages alone.
const launch = (executablePath: string, args: string[] = []): Promise<Browser> =>
  chromium.launch({ executablePath, chromiumSandbox: false, args });

/** Without motion an animation still takes a millisecond (web/src/styles/base.css), and so a frame, which a busy machine draws late. */
const atRest = `Promise.all(
  document
    .getAnimations()
    .filter(({ effect, playState }) => playState === 'running' && effect.getComputedTiming().endTime !== Infinity)
    .map(({ finished }) => finished.catch(() => {})),
)`;

/** Elements and a script that stand in texts which others have chosen (console-person.ts): how many are there, or have run. */
const madeOfText = "document.querySelectorAll('.hostile, [onerror], [src=x]').length + ('hacked' in window ? 1 : 0)";

/** The beginnings of the elements that stand out of the screen. */
const tooWide = `[...document.body.querySelectorAll('*')]
  .filter((one) => one.getBoundingClientRect().right > document.documentElement.clientWidth)
  .map((one) => one.outerHTML.slice(0, 150)).join('\\n')`;

/** Somebody at a browser of their own, with cookies of their own. Whatever the browser complains of is a failure. */
export class Person {
  readonly page: Page;
  readonly context: BrowserContext;
  readonly #look: Look;
  /** The first is the one that is shown. */
  #colorSchemes: Look['colorSchemes'];
  readonly #complaints: string[] = [];
  readonly #expected: number[] = [];
  readonly #forgiven: RegExp[] = [];

  private constructor(context: BrowserContext, page: Page, look: Look, ownOrigins: readonly string[]) {
    this.context = context;
    this.page = page;
    this.#look = look;
    this.#colorSchemes = look.colorSchemes;
    page.on('pageerror', (error) => {
      if (!this.#forgiven.some((words) => words.test(error.message)))
        this.#complaints.push(`error of a script: ${error.message}`);
    });
    page.on('console', (message) => {
      const { url } = message.location();
      const status = Number(/status of (\d+)/.exec(message.text())?.[1]);
      const at = this.#expected.indexOf(status);
      if (at >= 0) this.#expected.splice(at, 1);
      else if (this.#forgiven.some((words) => words.test(message.text()))) return;
      // Violations of the content security policy are errors here too.
      else if (message.type() === 'error' || message.type() === 'warning')
        this.#complaints.push(`${message.type()} on the console: ${message.text()} (${url})`);
    });
    page.on('request', (request) => {
      const url = new URL(request.url());
      if (!ownOrigins.includes(url.origin)) this.#complaints.push(`a request to ${url.href}`);
    });
  }

  static async at(browser: Browser, look: Look, ownOrigins: readonly string[], locale = 'en-US'): Promise<Person> {
    const { colorSchemes, width } = look;
    const context = await browser.newContext({
      colorScheme: colorSchemes[0]!,
      locale,
      viewport: { width, height: 800 },
      reducedMotion: 'reduce',
    });
    context.setDefaultTimeout(60_000);
    return new Person(context, await context.newPage(), look, ownOrigins);
  }

  /** The next answer with this status is what the test is about; Chromium calls each that is no success an error. */
  expects(status: number): void {
    this.#expected.push(status);
  }

  /** What the browser says in these words, however often, is what the test is about. */
  forgives(words: RegExp): void {
    this.#forgiven.push(words);
  }

  /** Opens a page, and looks at it. */
  async open(url: string, status = 200): Promise<void> {
    if (status >= 400) this.expects(status);
    const answer = await this.page.goto(url);
    assert.equal(answer?.status(), status, url);
    await this.look();
  }

  async fill(label: string, text: string): Promise<void> {
    await this.page.getByLabel(label).fill(text);
  }

  async press(name: string | RegExp): Promise<void> {
    await this.page.getByRole('button', typeof name === 'string' ? { name, exact: true } : { name }).click();
  }

  /** Waits until this page is shown, and looks at it. */
  async arrives(url: string | RegExp): Promise<void> {
    await this.page.waitForURL(url);
    await this.look();
  }

  /** Waits until the page says so. */
  async reads(text: string | RegExp): Promise<void> {
    await this.page.getByText(text).first().waitFor();
  }

  /**
   * What axe finds serious, what does not fit the screen, and what the browser has complained of until now; of a look in both colour
   * schemes in both. The next page is opened in the one that was looked at last, so that each is loaded in both as well.
   */
  async look(withAxe = true): Promise<void> {
    await this.page.waitForLoadState('load');
    for (const [at, colorScheme] of this.#colorSchemes.entries()) {
      if (at > 0) await this.page.emulateMedia({ colorScheme });
      await this.#lookIn(colorScheme, withAxe);
    }
    this.#colorSchemes = this.#colorSchemes.toReversed();
  }

  async #lookIn(colorScheme: string, withAxe: boolean): Promise<void> {
    const { page } = this;
    await page.evaluate(atRest);
    await this.#photograph(colorScheme);
    const where = `${page.url()}, ${colorScheme}, ${JSON.stringify(page.viewportSize())}`;
    if (withAxe) await this.#checkAccess(where);
    const [wide, screen] = (await page.evaluate(
      '[document.documentElement.scrollWidth, document.documentElement.clientWidth]',
    )) as [number, number];
    if (wide > screen) assert.fail(`${where}: ${wide} px wide: ${String(await page.evaluate(tooWide))}`);
    assert.equal(await page.evaluate(madeOfText), 0, `${where}: an element was made of a text, or has run`);
    assert.deepEqual(this.#complaints, [], where);
  }

  async #checkAccess(where: string): Promise<void> {
    const { page } = this;
    // Half a megabyte of program: once for each document.
    if ((await page.evaluate('typeof axe')) === 'undefined') await page.evaluate(axe.source);
    const { violations } = (await page.evaluate("axe.run({ resultTypes: ['violations'] })")) as AxeResults;
    const serious = violations.filter(({ impact }) => impact === 'serious' || impact === 'critical');
    assert.deepEqual(
      serious.map(({ id, nodes }) => [id, nodes.map(({ html, failureSummary }) => `${html}: ${failureSummary}`)]),
      [],
      where,
    );
  }

  /** For a person who wants to see it too. */
  async #photograph(colorScheme: string): Promise<void> {
    const folder = process.env['TOKENHOUSE_SCREENSHOTS'];
    if (folder === undefined) return;
    const name = `${new URL(this.page.url()).pathname.replaceAll('/', '_')}-${colorScheme}-${this.#look.width}-px-${Date.now()}.png`;
    await this.page.screenshot({ path: join(folder, name), fullPage: true });
  }

  async leave(): Promise<void> {
    assert.deepEqual(this.#complaints, []);
    await this.context.close();
  }
}
