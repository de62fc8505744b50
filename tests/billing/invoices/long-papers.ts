/** Documents with the longest names and the largest amounts, to look at. */
import type { ReceiptData } from '../../../src/billing/invoices/receipt.ts';
import { statementData } from '../../../src/billing/invoices/statement.ts';
import type { Invoice } from '../../../src/store/repositories/invoices.ts';
import type { Receipt } from '../../../src/store/repositories/receipts.ts';
import { defaultTaxNotes } from '../../../src/tax/tax.ts';
import { hostile } from '../../support/hostile.ts';
import { settings } from './invoicing.ts';

const october = Date.UTC(2026, 9, 1);
const november = Date.UTC(2026, 10, 1);
const buyer = {
  name: 'Müller & Söhne Donaudampfschifffahrtsgesellschaftskapitänsmützenherstellung mit beschränkter Haftung',
  address: ['Llanfairpwllgwyngyllgogerychwyrndrobwllllantysiliogogogoch Street 1', '04109 Leipzig', hostile(100), 'FR'],
  email: 'accounts-payable-of-the-whole-group@a-very-long-name-of-a-company.example.org',
  country: 'FR',
  taxId: 'FR12345678901',
  taxStatus: 'reverse_charge',
} as const;
const parties = {
  timeZone: 'America/Argentina/ComodRivadavia',
  seller: settings.seller,
  buyer,
  account: { id: 'acct_a65T2UXdn1ly', name: hostile(100) },
};
const tax = { name: 'VAT', ratePerMille: 0, treatment: 'reverse_charge', note: defaultTaxNotes.reverseCharge } as const;

const tiers = [
  { tier: 'default', priceMultiple: null },
  { tier: 'priority', priceMultiple: 17_500 },
  { tier: 'flex', priceMultiple: 5_000 },
  { tier: 'batch', priceMultiple: 3_333 },
] as const;
const pricedAt = (price: bigint, index: number): bigint =>
  (price * BigInt(tiers[index]?.priceMultiple ?? 10_000)) / 10_000n;

export function longStatement(): Invoice {
  const models = [
    ...tiers.map(() => 'small'),
    'meta-llama/Llama-3.3-70B-Instruct-Turbo-FP8-128k-with-a-very-long-context',
    hostile(128),
    'amodelwithoutanysigninitsnamewhichgoesonandonandonandon',
    ...Array.from({ length: 60 }, (_, index) => `qwen3-${index}b-instruct`),
  ];
  const data = statementData(
    {
      usage: models.map((modelId, index) => ({
        modelId,
        ...(tiers[index] ?? tiers[0]!),
        plan: index === 3 || index === 6 ? 'team' : null,
        inputPrice: pricedAt(15_000_000n, index),
        outputPrice: pricedAt(60_000_000n, index),
        cacheReadPrice: pricedAt(index % 2 === 0 ? 7_500_000n : 15_000_000n, index),
        requests: 1_234_567,
        promptTokens: 5_000_000_000,
        cachedTokens: 250_000_000,
        completionTokens: 70_000_000_000,
        costMicrocents: index === 1 ? 123_456_789_000_000n : 1_234_567_891n - BigInt(index),
      })),
      movements: [{ kind: 'topup', ofRevenue: false, count: 2, microcents: 123_506_789_000_000n }],
      payments: [
        {
          at: october + 5,
          microcents: 50_000_000_000n,
          reference: 'top_0123456789abcdef0123456789abcdef',
          receipt: null,
          method: null,
        },
        {
          at: october + 86_400_005,
          microcents: 123_456_789_000_000n,
          reference: 'top_0123456789abcdef0123456789abcdef',
          receipt: 'TH-R2026-000012',
          method: 'American Express ending in 4242',
        },
      ],
      receiptlessMicrocents: 50_000_000_000n,
      refunds: [],
    },
    { openingMicrocents: 0n, earlierMicrocents: 0n, refundsMicrocents: 5n, receiptlessMicrocents: 0n },
    { ...parties, tax },
  );
  return {
    id: 'inv_000000000000',
    accountId: parties.account.id,
    kind: 'statement',
    number: 'TH-2026-000007',
    month: '2026-10',
    corrects: '',
    periodStart: october,
    periodEnd: november,
    issuedAt: november + 3_600_000,
    totalMicrocents: BigInt(data.totalMicrocents),
    closingMicrocents: 0n,
    data: JSON.stringify(data),
  };
}

export function longReceipt(kind: Receipt['kind']): Receipt {
  const data: ReceiptData = {
    ...parties,
    version: 1,
    currency: 'USD',
    paidAt: october,
    method: 'American Express ending in 4242',
    origin: 'auto',
    topupId: 'top_0123456789abcdef0123456789abcdef',
    paymentId: 'pi_3QwertyuiopAsdfghjklZxcvbnm0123456789',
    reference: null,
    totalMicrocents: '123456789000000',
    totalCents: 123_456_789,
    tax: { ...tax, cents: 0, percent: '0' },
    corrects: kind === 'receipt' ? null : { number: 'TH-R2026-000011', why: 'dispute' },
  };
  return {
    id: 'rcpt_000000000000',
    accountId: parties.account.id,
    kind,
    number: 'TH-R2026-000012',
    corrects: kind === 'receipt' ? '' : 'rcpt_000000000001',
    topupId: data.topupId,
    issuedAt: october,
    totalMicrocents: 123_456_789_000_000n,
    method: data.method,
    data: JSON.stringify(data),
  };
}
