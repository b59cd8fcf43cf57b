/** A page for the pictures of browsers: it stands for what a test or an agent works on. */
export const SHOP = `<!doctype html><meta charset="utf-8"><title>Checkout – Lantern & Co.</title>
<style>
  body { margin: 0; font: 15px/1.5 system-ui, sans-serif; color: #1f2328; background: #faf8f4 }
  header { display: flex; justify-content: space-between; padding: 18px 32px; background: #25332d;
    color: #fff }
  main { display: grid; grid-template-columns: 1fr 260px; gap: 32px; padding: 32px; max-width: 860px }
  h1 { margin: 0 0 12px; font-size: 24px }
  label { display: block; margin: 12px 0 4px; font-weight: 600 }
  input { width: 100%; padding: 9px; border: 1px solid #c9c3b6; border-radius: 6px; font: inherit;
    box-sizing: border-box }
  button { margin-top: 20px; padding: 11px 22px; border: 0; border-radius: 6px; background: #b4541a;
    color: #fff; font: inherit; font-weight: 600 }
  aside { padding: 20px; border: 1px solid #e4ded1; border-radius: 10px; background: #fff;
    align-self: start }
  p { display: flex; justify-content: space-between; margin: 6px 0 }
</style>
<header><b>Lantern &amp; Co.</b><span>Basket (2)</span></header>
<main><form><h1>Checkout</h1>
<label>Name</label><input value="Ada Wong"><label>Street</label><input value="12 Harbour Road">
<label>Card</label><input value="4242 4242 4242 4242"><button>Pay 84.00 €</button></form>
<aside><b>Your order</b><p><span>Brass lantern</span><span>62.00 €</span></p>
<p><span>Wicks, 6 pieces</span><span>14.00 €</span></p><p><span>Shipping</span><span>8.00 €</span></p>
<hr><p><b>Total</b><b>84.00 €</b></p></aside></main>`
