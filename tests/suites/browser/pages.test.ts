/** Every page that is not the console's, in both colour schemes, on a phone and on a desktop: readable, in one piece, and quiet. */
import { after, before, describe, test } from 'node:test';

import { errorTable } from '../../../src/platform/errors.ts';
import { noFeatures, scriptedModel, TestService } from '../../support/service.ts';
import { looksInBoth, openBrowser, Person } from './browser.ts';

const service = new TestService({
  config: scriptedModel('- { say: [{ text: "one" }] }', { settings: noFeatures }),
});
before(() => service.start());
after(() => service.dispose());

describe('every page', () => {
  for (const look of looksInBoth)
    test(look.name, async (t) => {
      const browser = await openBrowser(t);
      const person = await Person.at(browser, look, [service.accountUrl, service.url]);
      for (const path of ['/', '/docs/errors', '/heads']) await person.open(service.accountUrl + path);
      for (const code of Object.keys(errorTable)) await person.open(`${service.accountUrl}/docs/errors/${code}`);
      await person.open(`${service.accountUrl}/nothing`, 404);
      await person.open(service.url);
      await person.page.getByRole('link', { name: 'Account host' }).click();
      await person.arrives(`${service.accountUrl}/`);
      await person.leave();
    });
});
