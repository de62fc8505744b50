import { once } from 'node:events';

import type { Finding } from './finding.ts';

/**
 * The large libraries that are loaded only on demand, each tried as far as possible without a network: an incompletely copied or
 * packed program is discovered here, instead of with the first invoice.
 */
const libraries: Readonly<Record<string, () => Promise<unknown>>> = {
  'PDF files are written (pdfkit)': async () => {
    const { default: PdfDocument } = await import('pdfkit');
    const pdf = new PdfDocument();
    const ended = once(pdf.resume(), 'end');
    pdf.font('Helvetica').text('text').font('Helvetica-Bold').text('text').end();
    await ended;
  },
  'PDF files are read (unpdf)': async () => {
    const { getResolvedPDFJS } = await import('unpdf');
    await getResolvedPDFJS();
  },
  'mail is sent (nodemailer)': async () => {
    const { createTransport } = await import('nodemailer');
    createTransport({ host: 'localhost' }).close();
  },
  'files in a bucket (@aws-sdk/client-s3)': async () => {
    const { S3Client } = await import('@aws-sdk/client-s3');
    // Not constructed, because on Node 20 it warns on standard error that it will stop working there.
    if (typeof S3Client !== 'function') throw new Error('it has no S3Client');
  },
  'payments (stripe)': async () => {
    const { default: Stripe } = await import('stripe');
    new Stripe('sk_test_none');
  },
  'PostgreSQL (pg)': async () => {
    const { default: pg } = await import('pg');
    await new pg.Pool().end();
  },
  'sign-in (better-auth)': async () => {
    await import('../../accounts/users/auth.ts');
  },
};

export async function lookAtLibraries(): Promise<readonly Finding[]> {
  const check = 'libraries';
  const findings: Finding[] = [];
  for (const [found, load] of Object.entries(libraries)) {
    try {
      await load();
    } catch (error) {
      findings.push({
        check,
        state: 'problem',
        found: `${found}: does not load`,
        why: error instanceof Error ? error.message.split('\n')[0]! : String(error),
        repair: 'npm ci --ignore-scripts && npm run build',
      });
    }
  }
  return findings.length > 0 ? findings : [{ check, state: 'ok', found: `all ${Object.keys(libraries).length} load` }];
}
