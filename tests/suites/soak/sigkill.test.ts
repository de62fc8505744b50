/** As `../faults/sigkill.test.ts`, a hundred times; `TOKENHOUSE_KILLS` says how many. */
process.env['TOKENHOUSE_KILLS'] ??= '100';
await import('../faults/sigkill.test.ts');

export {};
