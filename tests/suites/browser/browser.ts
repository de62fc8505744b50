import assert from 'node:assert/strict';
import { join } from 'node:path';
import type { TestContext } from 'node:test';

import axe from 'axe-core';
import type { AxeResults } from 'axe-core';
import { chromium } from 'playwright-core';
import type { Browser, BrowserContext, Page } from 'playwright-core';

export const looks = (['light', 'dark'] as const).flatMap((colorScheme) =>
  [360, 1280].map((width) => ({ colorScheme, width, name: `${colorScheme}, ${width} px` })),
);
export type Look = (typeof looks)[number];

/** Debian's Chromium, or the one that the setup has found, without a window. Closed with the test. */
export async function openBrowser(t: Pick<TestContext, 'after'>, args: string[] = []): Promise<Browser> {
  // The tests may run as root, or in a container, where Chromium has no sandbox; it sees our own pages alone.
  const executablePath = process.env['TOKENHOUSE_TEST_CHROMIUM']!;
  const browser = await chromium.launch({ executablePath, chromiumSandbox: false, args });
  t.after(() => browser.close());
  return browser;
}

/** Somebody at a browser of their own, with cookies of their own. Whatever the browser complains of is a failure. */
export class Person {
  readonly page: Page;
  readonly context: BrowserContext;
  readonly #look: Look;
  readonly #complaints: string[] = [];
  readonly #expected: number[] = [];
  readonly #forgiven: RegExp[] = [];

  private constructor(context: BrowserContext, page: Page, look: Look, ownOrigins: readonly string[]) {
    this.context = context;
    this.page = page;
    this.#look = look;
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
    const { colorScheme, width } = look;
    const context = await browser.newContext({
      colorScheme,
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

  /** What axe finds serious, what does not fit the screen, and what the browser has complained of until now. */
  async look(withAxe = true): Promise<void> {
    const { page } = this;
    await page.waitForLoadState('load');
    await this.#photograph();
    const where = `${page.url()}, ${JSON.stringify(page.viewportSize())}`;
    if (withAxe) await this.#checkAccess(where);
    const [wide, screen] = (await page.evaluate(
      '[document.documentElement.scrollWidth, document.documentElement.clientWidth]',
    )) as [number, number];
    assert.ok(wide <= screen, `${where}: ${wide} px wide`);
    assert.deepEqual(this.#complaints, [], where);
  }

  async #checkAccess(where: string): Promise<void> {
    const { page } = this;
    await page.evaluate(axe.source);
    const { violations } = (await page.evaluate('axe.run()')) as AxeResults;
    const serious = violations.filter(({ impact }) => impact === 'serious' || impact === 'critical');
    assert.deepEqual(
      serious.map(({ id, nodes }) => [id, nodes.map(({ html, failureSummary }) => `${html}: ${failureSummary}`)]),
      [],
      where,
    );
  }

  /** For a person who wants to see it too. */
  async #photograph(): Promise<void> {
    const folder = process.env['TOKENHOUSE_SCREENSHOTS'];
    if (folder === undefined) return;
    const name = `${new URL(this.page.url()).pathname.replaceAll('/', '_')}-${this.#look.name.replaceAll(/\W+/g, '-')}-${Date.now()}.png`;
    await this.page.screenshot({ path: join(folder, name), fullPage: true });
  }

  async leave(): Promise<void> {
    assert.deepEqual(this.#complaints, []);
    await this.context.close();
  }
}
