/** The lists of the console: the row that is a link, the header that stays in sight, exact times, and filters that say how many there are. */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';

import { TestService, until } from '../../support/service.ts';
import { owner, Visitor } from '../../support/visitor.ts';
import { browserOfFile, Person } from './browser.ts';
import { openConsole, signIn as signInWith } from './console-person.ts';

const openBrowser = browserOfFile();
const service = new TestService({ config: '' });
/** Of the key of the service, and of one with a label. */
const [plain, labelled] = [40, 3];
before(async () => {
  service.writeConfig(openConsole);
  await service.start();
  const visitor = new Visitor(service);
  await visitor.becomeOwner();
  const { body } = await visitor.ask('POST', '/v1/keys', { name: 'Labelled', tags: ['team-a'] });
  const json = { model: 'demo', messages: [{ role: 'user', content: 'hi' }] };
  for (let index = 0; index < plain + labelled; index++) {
    const key = index < plain ? service.key : body.key;
    const answer = await service.chat(json, { key });
    assert.equal(answer.status, 200, await answer.text());
  }
  const refused = await service.chat({ ...json, model: 'nothing' }, { key: body.key });
  assert.equal(refused.status, 404);
  await until(async () => (await visitor.get('/v1/errors?bucket_width=all')).data[0].results.length > 0);
});
after(() => service.dispose());

const personAt = async (width: number, colorScheme: 'light' | 'dark' = 'light'): Promise<Person> => {
  const look = { colorSchemes: [colorScheme], width, name: `${width} px` };
  const person = await Person.at(await openBrowser(), look, [service.accountUrl, service.url]);
  await signInWith(person, service, owner, { next: '/requests' });
  await person.page.locator('[data-row]').first().waitFor();
  return person;
};

test('each row is one link, wherever one clicks; it opens a tab with the middle button, and ids are selected', async () => {
  const person = await personAt(1280);
  const { page, context } = person;
  const row = page.locator('[data-row]').first();
  assert.equal(await row.getByRole('link').count(), 1);
  // To the second.
  assert.match(await row.locator('time').innerText(), /\d:\d\d:\d\d/);
  assert.match((await row.locator('time').getAttribute('title')) ?? '', /UTC$/);
  const href = await row.getByRole('link').getAttribute('href');
  // The link lies above its cells.
  const cell = row.locator('td').last();
  const [tab] = await Promise.all([context.waitForEvent('page'), cell.click({ button: 'middle', force: true })]);
  await tab.waitForURL(service.accountUrl + href);
  await tab.close();
  await cell.click({ force: true });
  await page.waitForURL(service.accountUrl + href);
  await page.goto(`${service.accountUrl}/keys`);
  const label = page.locator('[data-row] code').first();
  await label.waitFor();
  await label.dblclick();
  assert.notEqual(await page.evaluate('getSelection().toString()'), '', 'the label of a key is selected');
  // What lies above the link passes a click on, and one with a key opens a tab.
  await page.evaluate('getSelection().empty()');
  const time = page.locator('[data-row] time').first();
  const [other] = await Promise.all([context.waitForEvent('page'), time.click({ modifiers: ['ControlOrMeta'] })]);
  await other.waitForURL(/\/keys\/key_/);
  await other.close();
  await time.click();
  await page.waitForURL(/\/keys\/key_/);
  await person.leave();
});

describe('the header of a table stays below that of the page:', () => {
  for (const [width, colorScheme] of [
    [1440, 'light'],
    [1440, 'dark'],
  ] as const)
    test(`${width} px, ${colorScheme}`, async () => {
      const person = await personAt(width, colorScheme);
      const { page } = person;
      const row = page.locator('[data-row]').nth(19);
      await row.scrollIntoViewIfNeeded();
      await page.mouse.move(width / 2, 500);
      await page.mouse.wheel(0, 500);
      const edges = (of: string) => page.evaluate(`document.querySelector('${of}').getBoundingClientRect().toJSON()`);
      await until(async () => {
        const [bar, title] = [await edges('header'), await edges('main thead th')] as { bottom: number; top: number }[];
        return Math.abs(title!.top - bar!.bottom) < 2;
      });
      const painted = await page.evaluate(
        `(() => { const head = document.querySelector('main thead th'), { left, top } = head.getBoundingClientRect(); return document.elementFromPoint(left + 20, top + 16) === head; })()`,
      );
      assert.ok(painted, 'nothing of a row is painted over it');
      await person.look();
      await person.leave();
    });
});

describe('filters say how many requests there are, and are in the address:', () => {
  for (const width of [1280, 390])
    test(`${width} px`, async () => {
      const person = await personAt(width);
      const { page } = person;
      const field = (label: string) => page.getByRole('combobox', { name: label, exact: true });
      const options = async (label: string): Promise<readonly string[]> => {
        const list = page.getByRole('listbox', { name: label, exact: true });
        await until(async () => /\d$/.test(await list.getByRole('option').last().innerText()));
        return (await list.getByRole('option').allInnerTexts()).map((text) => text.replaceAll(/\s+/g, ' '));
      };
      await field('Model').click();
      assert.deepEqual(await options('Model'), ['All', `demo ${plain + labelled}`]);
      await person.look();
      await page.keyboard.press('Escape');
      await field('Key').click();
      const keys = await options('Key');
      assert.equal(keys[2], `Labelled ${labelled}`, keys.join());
      await page.keyboard.type('lab');
      await page.keyboard.press('Enter');
      await page.waitForURL(/\?key=key_/);
      await until(async () => (await page.locator('[data-row]').count()) === labelled);
      // Under the other filters, but not under its own.
      await field('State').click();
      const states = await options('State');
      assert.deepEqual(states.slice(0, 2), ['All', `finished ${labelled}`]);
      assert.equal(states.at(-1), 'refused 1');
      // By keyboard alone: a letter, the arrows, Enter.
      await page.keyboard.press('Escape');
      await field('Key').focus();
      await page.keyboard.press('Control+a');
      await page.keyboard.press('Delete');
      await page.keyboard.press('Enter');
      await page.waitForURL((url) => url.search === '');
      await field('Service tier').focus();
      await page.keyboard.press('d');
      assert.equal((await options('Service tier'))[2], `default ${plain + labelled}`);
      await page.keyboard.press('Enter');
      await page.waitForURL(/\?tier=default$/);
      await page.goto(`${service.accountUrl}/requests`);
      await page.getByText('More filters').click();
      await field('Tag').click();
      assert.deepEqual(await options('Tag'), ['All', `team-a ${labelled}`]);
      await page.getByRole('option', { name: 'team-a' }).click();
      await page.waitForURL(/\?tag=team-a$/);
      await field('Model').fill('gone');
      await page.keyboard.press('Enter');
      await page.waitForURL(/model=gone/);
      await page.getByText('No request matches').waitFor();
      await person.look();
      await person.leave();
    });
});
