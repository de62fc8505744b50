/** Who is taxed how, and how much of an amount the tax is. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';

import { isCountry } from '../../src/tax/countries.ts';
import {
  defaultTaxNotes,
  ownReverseChargeFault,
  reverseChargeFault,
  taxFor,
  taxStatuses,
  taxWithin,
} from '../../src/tax/tax.ts';
import type { TaxRules } from '../../src/tax/tax.ts';
import { isVatId } from '../../src/tax/vat-id.ts';

const rules: TaxRules = {
  sellerCountry: 'DE',
  rate: { name: 'VAT', ratePerMille: 190 },
  byCountry: [
    { country: 'FR', name: 'TVA', ratePerMille: 200 },
    { country: 'US', name: 'Tax', ratePerMille: 0 },
  ],
  notes: defaultTaxNotes,
};
const bare: TaxRules = { sellerCountry: null, rate: null, byCountry: [], notes: defaultTaxNotes };

test('the tax of a customer follows from their country and status', () => {
  for (const [of, country, taxId, taxStatus, name, ratePerMille, treatment] of [
    [rules, null, null, 'standard', 'VAT', 190, 'standard'],
    [rules, 'DE', null, 'standard', 'VAT', 190, 'standard'],
    [rules, 'FR', null, 'standard', 'TVA', 200, 'standard'],
    [rules, 'US', null, 'standard', 'Tax', 0, 'standard'],
    [rules, 'FR', null, 'exempt', 'TVA', 0, 'exempt'],
    [rules, null, null, 'exempt', 'VAT', 0, 'exempt'],
    [rules, 'FR', 'FR00123456789', 'reverse_charge', 'TVA', 0, 'reverse_charge'],
    [rules, 'AT', 'ATU12345678', 'reverse_charge', 'VAT', 0, 'reverse_charge'],
    // The status alone is not enough: the sale is taxed.
    [rules, 'DE', 'DE123456789', 'reverse_charge', 'VAT', 190, 'standard'],
    [rules, 'FR', null, 'reverse_charge', 'TVA', 200, 'standard'],
    [rules, null, 'FR00123456789', 'reverse_charge', 'VAT', 190, 'standard'],
    [bare, 'DE', 'DE123456789', 'reverse_charge', 'Tax', 0, 'reverse_charge'],
    [bare, 'DE', null, 'exempt', 'Tax', 0, 'exempt'],
  ] as const) {
    const note = { standard: null, exempt: defaultTaxNotes.exempt, reverse_charge: defaultTaxNotes.reverseCharge };
    assert.deepEqual(
      taxFor(of, { country, taxId, taxStatus }),
      { name, ratePerMille, treatment, note: note[treatment] },
      `${country} ${taxId} ${taxStatus}`,
    );
  }
  assert.equal(taxFor(bare, { country: 'DE', taxId: null, taxStatus: 'standard' }), null);
});

test('reverse charge: by an operator for buyers abroad, by customers with a VAT id of the Union only', () => {
  for (const [country, taxId, byOperator, byCustomer] of [
    ['FR', 'FR 12 345 678 901', true, true],
    ['GR', 'EL123456789', true, true],
    ['NL', 'nl123456789b01', true, true],
    ['FR', 'DE123456789', true, false],
    ['FR', '12345678901', true, false],
    ['CH', 'CHE-123.456.789', true, false],
    ['DE', 'DE123456789', false, false],
    ['FR', null, false, false],
    [null, 'FR12345678901', false, false],
  ] as const) {
    const payer = { country, taxId };
    assert.equal(reverseChargeFault(payer, 'DE') === undefined, byOperator, `${country} ${taxId}`);
    assert.equal(ownReverseChargeFault(payer, 'DE') === undefined, byCustomer, `${country} ${taxId}`);
  }
});

test('numbers of each member of the Union, as the Commission gives their form, and none with another prefix', () => {
  const examples = {
    AT: 'ATU12345678',
    BE: 'BE0123456789',
    BG: 'BG123456789',
    CY: 'CY12345678X',
    CZ: 'CZ12345678',
    DE: 'DE123456789',
    DK: 'DK12345678',
    EE: 'EE123456789',
    ES: 'ESX1234567X',
    FI: 'FI12345678',
    FR: 'FRXX123456789',
    GR: 'EL123456789',
    HR: 'HR12345678901',
    HU: 'HU12345678',
    IE: 'IE1234567WA',
    IT: 'IT12345678901',
    LT: 'LT123456789012',
    LU: 'LU12345678',
    LV: 'LV12345678901',
    MT: 'MT12345678',
    NL: 'NL123456789B12',
    PL: 'PL1234567890',
    PT: 'PT123456789',
    RO: 'RO12',
    SE: 'SE123456789012',
    SI: 'SI12345678',
    SK: 'SK1234567890',
  };
  assert.equal(Object.keys(examples).length, 27);
  for (const [country, id] of Object.entries(examples)) {
    assert.ok(isVatId(id, country), id);
    assert.ok(!isVatId(`${id}9`.padEnd(30, '9'), country), id);
    assert.ok(!isVatId(id.slice(2), country), 'without its prefix');
    for (const other of Object.keys(examples))
      if (other !== country) assert.ok(!isVatId(id, other), `${id} in ${other}`);
  }
  assert.ok(!isVatId('US123456789', 'US'));
  assert.ok(!isVatId('DE123456789', 'constructor'));
});

test('countries are those of ISO 3166-1', () => {
  for (const code of ['DE', 'US', 'GB', 'TW']) assert.ok(isCountry(code), code);
  for (const text of ['UK', 'EU', 'XX', 'ZZ', 'de', 'D', 'DEU', '', 'AD AE']) assert.ok(!isCountry(text), text);
});

test('the part of an amount that is tax, rounded half up', () => {
  for (const [cents, ratePerMille, tax] of [
    [11_900, 190, 1_900],
    [1_000, 190, 160],
    [1, 190, 0],
    [3, 200, 1],
    [-3, 200, -1],
    [0, 190, 0],
    [1_000, 0, 0],
    [1_000, 1_000, 500],
    // A half of a cent: 21 × 0.05 ÷ 1.05 = 1; 63 × 1 ÷ 6 = 10.5.
    [21, 50, 1],
    [63, 200, 11],
    [-63, 200, -11],
    [99_999_999_999, 255, 20_318_725_099],
  ] as const)
    assert.equal(taxWithin(cents, ratePerMille), tax, `${cents} at ${ratePerMille}`);
});

test('property: tax and net are the amount, and the tax is the rate of the net to half a cent', () => {
  fc.assert(
    fc.property(
      fc.integer({ min: 0, max: 1_000_000_000_000 }),
      fc.integer({ min: 0, max: 1_000 }),
      (cents, ratePerMille) => {
        const tax = taxWithin(cents, ratePerMille);
        // |tax − cents × r ÷ (1000 + r)| ≤ ½, in whole numbers.
        const off = 2n * (BigInt(tax) * (1_000n + BigInt(ratePerMille)) - BigInt(cents) * BigInt(ratePerMille));
        const whole = 1_000n + BigInt(ratePerMille);
        assert.ok(off > -whole && off <= whole);
        assert.equal(taxWithin(-cents, ratePerMille), 0 - tax);
      },
    ),
  );
});

test('property: a buyer who is not taxed is shown why, and nobody is taxed at two rates', () => {
  fc.assert(
    fc.property(
      fc.constantFrom('DE', 'FR', 'US', 'JP', null),
      fc.constantFrom('DE123456789', 'FR12345678901', null),
      fc.constantFrom(...taxStatuses),
      (country, taxId, taxStatus) => {
        const applied = taxFor(rules, { country, taxId, taxStatus })!;
        if (applied.treatment !== 'standard') {
          assert.equal(applied.ratePerMille, 0);
          assert.notEqual(applied.note, null);
          assert.equal(applied.treatment, taxStatus);
        } else assert.equal(applied.ratePerMille, country === 'FR' ? 200 : country === 'US' ? 0 : 190);
      },
    ),
  );
});
