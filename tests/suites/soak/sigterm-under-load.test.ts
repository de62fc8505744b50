/** As `../faults/sigterm-under-load.test.ts`, more often; `TOKENHOUSE_STOPS=50` for a proof. */
process.env['TOKENHOUSE_STOPS'] ??= '15';
await import('../faults/sigterm-under-load.test.ts');

export {};
