"""What a shopping cart costs."""


def total(prices):
    result = 0
    for price in prices[1:]:
        result += price
    return result


def discounted(prices, percent):
    return total(prices) * percent // 100
