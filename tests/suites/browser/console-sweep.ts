/** Every page of the console in one width, in both colour schemes and all languages: console-phone.test.ts and console-desktop.test.ts. */
import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach, describe, test } from 'node:test';

import { BatchClient, chatLine } from '../../support/batch-client.ts';
import { hostileName } from '../../support/hostile.ts';
import { TestService, until } from '../../support/service.ts';
import { Upstream } from '../../support/upstream.ts';
import { owner, Visitor } from '../../support/visitor.ts';
import { browserOfFile, Person } from './browser.ts';
import type { Look } from './browser.ts';
import { consolePages } from './console-pages.ts';
import { fillHostile, hostileAnswer, hostileModel, type HostileIds } from './console-hostile.ts';
import { openConsole, signIn } from './console-person.ts';

const languages = ['en-US', 'de-DE', 'zh-CN'];

export function sweepPages(look: Look): void {
  const openBrowser = browserOfFile();
  const service = new TestService({ config: '' });
  let ids: Ids;
  let upstream: Upstream;
  before(async () => {
    upstream = await Upstream.start(hostileAnswer, { isLookedAt: true });
    service.writeConfig(openConsole + hostileModel(upstream));
    await service.start();
    ids = await fill(service);
    await service.stop();
  });
  // A sweep makes nearly as many requests as a person may in a minute, and a service that has just started has counted none of them.
  beforeEach(() => service.start());
  afterEach(() => service.stop());
  after(async () => {
    await service.dispose();
    await upstream.close();
  });

  describe('every page', () => {
    for (const locale of languages)
      test(`${look.name}, ${locale}`, async () => {
        const person = await Person.at(await openBrowser(), look, [service.accountUrl, service.url], locale);
        const visitAll = async (isSignedIn: boolean): Promise<void> => {
          for (const { path, signedIn, ready, then } of consolePages) {
            if ((signedIn === true) !== isSignedIn) continue;
            if (/_nothing|(req|whe)_0+$/.test(path)) person.expects(404);
            // An operator looks for a request in all accounts, too.
            if (/req_0+$/.test(path)) person.expects(404);
            await open(person, service.accountUrl + withIds(path, ids), locale);
            if (ready !== undefined) await person.page.locator(ready).waitFor();
            await lookAt(person, locale, then);
          }
        };
        await person.page.goto(`${service.accountUrl}/sign-in`);
        await visitAll(false);
        await signIn(person, service, owner, { next: '/keys' });
        await visitAll(true);
        await person.leave();
      });
  });
}

interface Ids extends HostileIds {
  readonly KEY: string;
  readonly REQUEST: string;
  readonly ACCOUNT: string;
}

const withIds = (path: string, ids: Ids): string =>
  Object.entries(ids).reduce((filled, [name, id]: readonly [string, string]) => filled.replace(name, id), path);

/** An owner with keys, requests and payments, so that no list is empty. */
async function fill(service: TestService): Promise<Ids> {
  const visitor = new Visitor(service);
  await visitor.becomeOwner();
  const made = async (path: string, json: object, once?: string) => {
    const { status, body } = await visitor.ask('POST', path, json, once);
    assert.equal(status, 201, JSON.stringify(body));
    return body;
  };
  const key = await made('/v1/keys', { name: hostileName, limit_cents: 250 });
  const { data: gone } = await made('/v1/keys', { name: 'Shared' });
  assert.equal((await visitor.ask('DELETE', `/v1/keys/${gone.id}`)).status, 200);
  const chat = async (secret: string): Promise<string> => {
    const answer = await service.chat({ model: 'demo', messages: [{ role: 'user', content: 'hi' }] }, { key: secret });
    assert.equal(answer.status, 200, await answer.text());
    return answer.headers.get('x-request-id')!;
  };
  await chat(service.key);
  const request = await chat(key.key);
  const client = new BatchClient(service);
  await client.when((await client.of([chatLine('one', 'hi')])).id);
  await made('/v1/credits/topups', { amount_cents: 2500 }, 'left');
  await visitor.topUp(2500, 'paid');
  const hostile = await fillHostile(service, visitor, key.key);
  return { KEY: key.data.id, REQUEST: request, ACCOUNT: service.accountId, ...hostile };
}

/**
 * In English each page is a document of its own, which costs a second of processors; in the other languages the console goes from one
 * to the next, as by a click.
 */
async function open({ page }: Person, url: string, locale: string): Promise<void> {
  // Between two pages there is another, also where only what is behind the # differs.
  if (locale === 'en-US') {
    await page.goto('about:blank');
    await page.goto(url);
    await page.getByRole('heading', { level: 1 }).waitFor();
  } else
    for (const next of ['/between', url]) {
      await page.evaluate("for (const title of document.querySelectorAll('h1')) title.dataset.before = 'yes'");
      await page.evaluate(`history.pushState({}, '', ${JSON.stringify(next)})`);
      await page.locator('h1:not([data-before])').waitFor();
    }
}

/** What axe finds does not depend on the language: it looks at the pages in English. */
async function lookAt(person: Person, locale: string, then?: (person: Person) => Promise<void>): Promise<void> {
  const loading = person.page.locator('[role=status][aria-label]:not([data-example] *)');
  await until(async () => (await loading.count()) === 0);
  await person.look(locale === 'en-US');
  if (then === undefined) return;
  await then(person);
  await person.look(locale === 'en-US');
}
