import { paymentClaims } from './claims.ts';
import { moreClaims } from './more-claims.ts';
import { openLedger } from './sqlite-ledger.ts';

paymentClaims(openLedger);
moreClaims(openLedger);
