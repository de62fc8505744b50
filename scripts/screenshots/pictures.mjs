// The pictures of the documentation, a row each; `node scripts/screenshots.mjs` takes them.
//
// - `by`: whose console it is; `at`: the page that is opened.
// - `size`: of the window, up to where the picture is cut. Below 860 pixels the console has no navigation beside the page.
// - `scale`: pixels of the picture for each of the window.
// - `steps`: what is done there, as a person does it. Returns the element that the picture shows; without one it is the window.
import { startServer } from './server.mjs';

const readme = {
  by: 'operator',
  at: '/',
  size: { width: 1280, height: 800 },
  scale: 2,
  bytesMax: 150_000,
  steps: overview,
};
/** Text stays readable where a page of the documentation is 800 pixels wide. */
const tutorial = { theme: 'light', scale: 1.5, bytesMax: 60_000 };
const pageOf = (height) => ({ size: { width: 840, height }, ...tutorial });
const dialogOf = { size: { width: 1000, height: 900 }, ...tutorial };

export const pictures = [
  { name: 'console-light', theme: 'light', ...readme },
  { name: 'console-dark', theme: 'dark', ...readme },
  { name: 'sell-server', by: 'operator', at: '/operator/catalogue', ...dialogOf, steps: addServer },
  { name: 'sell-customer', by: 'operator', at: '/operator/accounts?open=create', ...dialogOf, steps: bringIn },
  { name: 'sell-pay', by: 'customer', at: '/billing', ...pageOf(570), steps: pay },
  { name: 'sell-receipt', by: 'customer', at: '/requests', ...pageOf(580), steps: openReceipt },
  { name: 'sell-revenue', by: 'operator', at: '/operator/revenue', ...pageOf(500), steps: revenue },
  { name: 'sell-refund', by: 'operator', at: '/', ...dialogOf, steps: refund },
  { name: 'sell-invoice', by: 'customer', at: '/', ...pageOf(668), scale: 1.25, steps: invoice },
];

const main = (page) => page.getByRole('main');
const dialog = (page) => page.getByRole('dialog');
const button = (inside, name) => inside.getByRole('button', { name, exact: true });

async function overview(page) {
  await page.getByText('Spend of the last 30 days as a table').waitFor();
  await page.locator('[data-row]').first().waitFor();
}

async function addServer(page) {
  const server = await startServer();
  try {
    await main(page).getByRole('button', { name: 'Add a server' }).click();
    await dialog(page).getByLabel('Address').fill(server.url);
    await button(dialog(page), 'Ask the server').click();
    await button(dialog(page), 'Try the model').click();
    await dialog(page).getByRole('status', { name: 'What was found' }).waitFor();
    await dialog(page).getByLabel('Who may use it').selectOption({ label: 'Everybody, at these prices' });
    await dialog(page).getByLabel('Input', { exact: true }).fill('0.10');
    await dialog(page).getByLabel('Output', { exact: true }).fill('0.40');
  } finally {
    server.close();
  }
  return dialog(page);
}

async function bringIn(page) {
  await dialog(page).getByLabel('Name').fill('Seaside Analytics');
  await dialog(page).getByLabel('E-mail of its owner').fill('lin@example.org');
  await dialog(page).getByLabel('First credit').fill('5.00');
  return dialog(page);
}

async function pay(page) {
  await main(page).getByRole('link', { name: 'Add credit' }).click();
  await button(dialog(page), 'Continue to payment').click();
  await page.getByRole('button', { name: /^Pay \$/ }).click();
  await page.waitForURL(/checkout=done/);
  await main(page).getByText('the credit can be spent').waitFor();
  await main(page).getByRole('row').nth(1).waitFor();
}

/** The newest request that was charged. */
async function openReceipt(page) {
  await page.locator('[data-row]').first().getByRole('link').first().click();
  await main(page).getByText('Charged').first().waitFor();
}

async function revenue(page) {
  await page.getByRole('row').nth(3).waitFor();
}

async function refund(page, demo) {
  const { data } = await demo.api('GET', '/v1/generations?limit=1', undefined, demo.customer);
  await page.goto(`${demo.accountUrl}/requests/${data[0].id}`);
  await button(main(page), 'Refund').click();
  await dialog(page).getByLabel('Reason').fill('The answer was cut');
  return dialog(page);
}

async function invoice(page, demo) {
  const { data } = await demo.api('GET', '/v1/invoices', undefined, demo.customer);
  await page.goto(`${demo.accountUrl}/v1/invoices/${data[0].id}.html`);
}
