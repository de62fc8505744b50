import { paymentClaims } from './claims.ts';
import { moreClaims } from './more-claims.ts';
import { openBooks } from './sqlite-books.ts';

paymentClaims(openBooks);
moreClaims(openBooks);
