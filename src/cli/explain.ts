import { suggestion } from '../config/suggestion.ts';
import { chargeOf, errorTable } from '../platform/errors.ts';
import type { ErrorCode, ErrorRow } from '../platform/errors.ts';
import type { BareContext } from './context.ts';
import { exitCodes } from './failure.ts';
import { table } from './output.ts';
import { CommandFailure } from './command-failure.ts';

const codes = Object.keys(errorTable) as ErrorCode[];

/** Prints the page of an error code, from the table that the service uses. */
export async function explainCode({ print }: BareContext, _options: unknown, code?: string): Promise<number> {
  if (code === undefined) {
    print.result(
      codes.map((each) => valueOf(each)),
      table(
        ['code', 'status', 'when'],
        codes.map((each) => [each, errorTable[each].status, errorTable[each].meaning]),
      ),
    );
    return 0;
  }
  if (!Object.hasOwn(errorTable, code)) throw unknownCode(code);
  const row: ErrorRow = errorTable[code as ErrorCode];
  print.result(valueOf(code as ErrorCode), [
    `${code} · HTTP ${row.status} · ${row.type}`,
    `when     ${row.meaning}`,
    `do       ${row.remedy}`,
    `retry    ${row.retry}`,
    `charge   ${chargeOf(row)}`,
  ]);
  return 0;
}

function valueOf(code: ErrorCode) {
  const row: ErrorRow = errorTable[code];
  return { code, ...row, charge: chargeOf(row) };
}

function unknownCode(code: string): CommandFailure {
  const near = suggestion(code, codes);
  return new CommandFailure({
    what: [`There is no error code ${JSON.stringify(code.slice(0, 60))}.`],
    why: near === undefined ? 'tokenhouse explain without a code lists all of them' : `the nearest one is ${near}`,
    repair: [near === undefined ? 'tokenhouse explain' : `tokenhouse explain ${near}`],
    exitCode: exitCodes.usage,
  });
}
