/** Whether tests run in their long forms, as in `npm run e2e:browsers`. */
export const isWhole = process.env['HOLDFAST_WHOLE'] === '1'
